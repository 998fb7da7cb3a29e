"""A small HTTP/1.1 listener (RFC 9112), enough to be somebody's peer, with bounds on time and size."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

from deedbox_conformance.wire import Json

MAX_BODY = 131_072
_IDLE_SECONDS = 15.0
_DRAIN_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class Request:
    """Header names are lower-case; ``too_large`` says that the body was not read to its end."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        fixed = {"content-type": "application/json", "access-control-allow-origin": "*"}
        return cls(status, json.dumps(value, ensure_ascii=False, indent=2).encode(), fixed | dict(headers or {}))


Responder: TypeAlias = Callable[[Request], Awaitable[Response]]


class Listener:
    """Serves one responder until closed."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> tuple[str, int]:
        """Listen; returns the address bound, for *port* may be 0."""
        self._server = await asyncio.start_server(self._accept, host, port, ssl=tls)
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for task, writer in self._open.items():
                writer.transport.abort()  # a polite TLS farewell would wait for idle clients
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - start_server always runs this in a task
        self._open[task] = writer
        try:
            with contextlib.suppress(OSError, EOFError, ValueError, TimeoutError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._open.pop(task, None)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection stays."""
        async with asyncio.timeout(_IDLE_SECONDS):
            request = await _read(reader)
        response = await self._responder(request)
        stays = not request.too_large and request.headers.get("connection", "").lower() != "close"
        head = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        head += [f"{name}: {value}" for name, value in response.headers.items()]
        head += [f"content-length: {len(response.body)}", f"connection: {'keep-alive' if stays else 'close'}", "", ""]
        body = b"" if request.method == "HEAD" else response.body
        writer.write("\r\n".join(head).encode("latin-1") + body)
        await writer.drain()
        if request.too_large:  # a close with unread bytes would reset the answer away
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await reader.read(_DRAIN_BYTES)
        return stays


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    body = await (_chunks(reader) if chunked else _sized(reader, int(headers.get("content-length", "0"))))
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Request(method, parts.path, query, headers, body or b"", too_large=body is None)


async def _sized(reader: asyncio.StreamReader, size: int) -> bytes | None:
    return None if size > MAX_BODY else await reader.readexactly(size)


async def _chunks(reader: asyncio.StreamReader) -> bytes | None:
    """The joined chunks (RFC 9112 §7.1), or ``None`` as soon as they are too many."""
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        if len(body) + size > MAX_BODY:
            return None
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return bytes(body)
