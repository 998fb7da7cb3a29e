"""Listeners and shutdown: uvicorn inside our process, with a TLS context we own (libraries §4)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from deedbox.app import build, running
from deedbox.node import Node
from deedbox.refusals import Refusal

GRACE = 10


class _Server(uvicorn.Server):
    """uvicorn's server without its own signal handling: stopping is decided here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listener(address: str) -> socket.socket:
    """A bound socket for ``host:port``; port 0 takes a free one."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host.strip("[]"), int(port)))
    except OSError as error:
        sock.close()
        raise Refusal("address_in_use", 500, f"cannot listen on {address}: {error.strerror}") from None
    sock.setblocking(False)
    return sock


def tls_context(node: Node) -> ssl.SSLContext | None:
    """The context for the listener by the settings; nothing where a proxy speaks TLS for us."""
    tls = node.kernel.settings.node.tls
    if tls.mode != "files":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(str(tls.certificate), str(tls.key))
    return context


@asynccontextmanager
async def serving(
    node: Node, sock: socket.socket, context: ssl.SSLContext | None = None, *, access_log: bool = True
) -> AsyncIterator[None]:
    """Serve on a socket until the block ends; what is under way is finished first."""
    config = uvicorn.Config(
        build(node, access_log=access_log),
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=65_536,
        backlog=2048,
    )
    config.load()
    config.ssl = context
    server = _Server(config)
    async with running(node):
        task = asyncio.create_task(server.serve(sockets=[sock]), name="http")
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if task.done():
            task.result()
        try:
            yield
        finally:
            server.should_exit = True
            await task


async def serve_until_stopped(node: Node, sock: socket.socket, context: ssl.SSLContext | None, ready: Any) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    async with serving(node, sock, context):
        ready()
        await stop.wait()
