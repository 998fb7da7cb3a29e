"""Listeners and shutdown: uvicorn inside our process, with a TLS context we own (libraries §4)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Protocol, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deedbox import control
from deedbox.app import build, running
from deedbox.facets import Plugin
from deedbox.node import Node
from deedbox.outgoing import DevelopmentTrust
from deedbox.refusals import Refusal
from deedbox.settings import Settings, parse_address

GRACE = 10
FAREWELL = 0.1
IDLE = 30
"""Seconds."""
HEAD_BYTES, HEADERS = 65_536, 128
"""Of one request, before its body; a whole read of the socket may come on top of the first."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Development(DevelopmentTrust, Protocol):
    """The switch for ``.test`` names as a listener needs it: under our name while we serve."""

    def serving(self, port: int) -> AbstractContextManager[ssl.SSLContext]:
        """Answers for the node's own name on ``port`` until the block ends; yields the listener's TLS context."""


def development_of(settings: Settings, classes: Iterable[type[Plugin]]) -> Development | None:
    """What a subscribed class offers as ``open_development``, if the settings turn it on; before there is a kernel."""
    if settings.node.development is None:
        return None
    for each in classes:
        offered = getattr(each, "open_development", None)
        if offered is not None:
            return cast("Development", offered(settings))
    raise Refusal(
        "facet_missing", 500, "node.development is set, but nobody here offers it", next_step="add [facets.wellknown]"
    )


class _Server(uvicorn.Server):
    """uvicorn's server without its own signal handling: stopping is decided here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(HttpToolsProtocol):
    """uvicorn's connection, with bounds to a request's head: it has none of its own, neither in bytes nor in time.

    A head is awaited from the start, and again after every message; what came with the end of one is not counted.
    """

    _head = 0
    _messages = 0
    _awaiting = True
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        super().connection_made(transport)
        self._patience = self.loop.call_later(IDLE, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._messages
        super().data_received(data)
        if not self._awaiting or self._messages != before or self.transport.is_closing():
            return
        self._head += len(data)
        if self._head > HEAD_BYTES:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._patience is None:
            self._patience = self.loop.call_later(IDLE, self.transport.close)

    def on_headers_complete(self) -> None:
        self._awaiting = False
        self._rest()
        if len(self.headers) > HEADERS:
            raise ValueError("too many headers")  # the parser makes it a 400
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._messages += 1
        self._awaiting, self._head = True, 0
        super().on_message_complete()

    def _rest(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def listener(address: str) -> socket.socket:
    """A bound socket for ``host:port``; port 0 takes a free one."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        code = "address_in_use" if error.errno == errno.EADDRINUSE else "cannot_listen"
        said = f"cannot listen on {address}: {error.strerror}"
        raise Refusal(code, 500, said, next_step="name another address in node.listen, or with --listen") from None
    sock.setblocking(False)
    return sock


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """The context for the listener by the settings; nothing where a proxy speaks TLS for us."""
    tls = settings.node.tls
    if tls.mode != "files":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(str(tls.certificate), str(tls.key))
    except OSError as error:
        why = (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or "not readable"
        said = f"{tls.certificate} and {tls.key} are no chain with its private key: {why}"
        raise Refusal("bad_certificate", 500, said, next_step="see node.tls: both in PEM, read by us alone") from None
    return context


@asynccontextmanager
async def serving(
    node: Node, sock: socket.socket, context: ssl.SSLContext | None = None, *, access_log: bool = True
) -> AsyncIterator[None]:
    """Serve on a socket until the block ends; what is under way is finished first."""
    config = uvicorn.Config(
        build(node, access_log=access_log),
        loop="none",
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=65_536,
        backlog=2048,
    )
    config.load()
    config.ssl = context
    server = _Server(config)
    _settle_garbage()
    if (outdated := node.database.outdated()) is not None:
        node.log.warning("outdated_database", detail=outdated)
    async with running(node):
        task = asyncio.create_task(server.serve(sockets=[sock]), name="http")
        while not server.started and not task.done():  # noqa: ASYNC110  # uvicorn tells its start by an attribute
            await asyncio.sleep(0.005)
        if task.done():
            task.result()
        try:
            yield
        finally:
            server.should_exit = True
            await _ended(server, task)


async def _ended(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    """Wait for the server; an idle peer that does not answer TLS's farewell is not waited for (RFC 8446 §6.1)."""
    closing: set[Any] = set()
    while not (await asyncio.wait({task}, timeout=FAREWELL))[0]:
        for transport in closing:
            transport.abort()
        connections = [cast("Any", each).transport for each in server.server_state.connections]
        closing = {each for each in connections if each.is_closing()}
    task.result()


def _settle_garbage() -> None:
    """What was made at start lives as long as the process, so the collector need not look through it, not even once."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


async def serve_until_stopped(node: Node, sock: socket.socket, context: ssl.SSLContext | None, ready: Any) -> None:
    """Serve, and answer the owner's commands, until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    async with serving(node, sock, context), control.listening(node):
        ready()
        await stop.wait()
