"""The senders' side of discovery: serves ``https://peer.test/.well-known/oip.json`` on loopback (OIP 1.2 §7.1).

The node under test must find the senders' keys as it would find anybody's; development trust stands in for DNS and
the public authorities, and nothing else is made easier for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from socket import create_server, socket

from deedbox_wellknown.development import Development
from tests.bench.envelopes import DOMAIN, directory_document

_PATH = b"GET /.well-known/oip.json "
_HEAD_LIMIT = 16_384


@contextmanager
def published_senders(trust: Path) -> Iterator[None]:
    """Answers for the senders' domain while the block runs; ``trust`` is the development folder the node shares."""
    listening = create_server(("127.0.0.1", 0))
    with Development(DOMAIN, trust).serving(listening.getsockname()[1]) as tls:
        over: Future[Callable[[], object]] = Future()
        thread = threading.Thread(target=asyncio.run, args=(_serve(listening, tls, over),), name="senders", daemon=True)
        thread.start()
        end = over.result(10)
        try:
            yield
        finally:
            end()
            thread.join()


async def _serve(listening: socket, tls: ssl.SSLContext, over: Future[Callable[[], object]]) -> None:
    """Listens until the call that it leaves in ``over`` is made from any thread."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    async with await asyncio.start_server(_answer, sock=listening, ssl=tls, limit=_HEAD_LIMIT):
        over.set_result(partial(loop.call_soon_threadsafe, ended.set))
        await ended.wait()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request a connection."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        head = await reader.readuntil(b"\r\n\r\n")
        found = head.startswith(_PATH)
        body = directory_document() if found else b'{"error":"not_found"}'
        status = "200 OK" if found else "404 Not Found"
        kept = "cache-control: public, max-age=300\r\n" if found else ""
        told = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{kept}content-length: {len(body)}\r\n"
        writer.write(f"{told}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
