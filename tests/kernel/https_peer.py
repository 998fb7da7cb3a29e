"""Real HTTPS on loopback for tests of what goes out: a peer that answers byte for byte, and a wire that leads to it.

A ``Peer`` stands for any number of names. What it says is a script per path, so that a test can misbehave on purpose.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpcore2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PUBLIC = "93.184.215.14"
"""An address the guard lets pass; nothing in these tests ever sends a packet there."""


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Script = Callable[[asyncio.StreamWriter, Request], Awaitable[None]]


def plain(
    body: bytes = b"{}",
    *headers: str,
    status: str = "200 OK",
    content_type: str = "application/json",
    length: bool = True,
) -> Script:
    """A complete answer; without ``length`` it ends where the connection ends."""

    async def answer(writer: asyncio.StreamWriter, request: Request) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", *headers]
        lines += [f"Content-Length: {len(body)}"] if length else ["Connection: close"]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        await writer.drain()
        if not length:
            writer.close()

    return answer


def redirect(location: str, status: str = "302 Found") -> Script:
    return plain(b"", f"Location: {location}", status=status)


def drip(every: float) -> Script:
    """An answer that is always about to go on: one byte at a time, for a minute."""

    async def answer(writer: asyncio.StreamWriter, request: Request) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(int(60 / every)):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(every)

    return answer


def hang_up() -> Script:
    async def answer(writer: asyncio.StreamWriter, request: Request) -> None:
        writer.transport.abort()

    return answer


class Authority:
    """Signs one certificate for the names of a test; trusted by the client context it gives, and by nobody else."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "deedbox tests")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        encoding = serialization.Encoding.PEM
        secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self._public = certificate.public_bytes(encoding).decode("ascii")
        self._file = folder / "peer.pem"
        self._file.write_bytes(self._public.encode("ascii") + secret)

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._file)
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self._public)


@dataclass
class Peer:
    """What it answers, by path, and what it has seen: names asked for in TLS, connections, requests."""

    scripts: dict[str, Script] = field(default_factory=dict)
    names: list[str | None] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    at_once: int = 0
    most_at_once: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await self._answer(await read_request(reader), writer)
        writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.scripts.get(request.target, plain(b"", status="404 Not Found"))(writer, request)
        finally:
            self.at_once -= 1


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _version = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@asynccontextmanager
async def serving(peer: Peer, context: ssl.SSLContext) -> AsyncIterator[Peer]:
    """Serves on a free loopback port until the block ends, then drops every connection."""

    def seen(_socket: ssl.SSLObject | ssl.SSLSocket, name: str | None, _context: ssl.SSLContext) -> None:
        peer.names.append(name)

    context.sni_callback = seen
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        with suppress(asyncio.CancelledError):
            await peer.serve(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Wire:
    """Notes which address was to be connected to, and connects to the peer on loopback instead."""

    port: int
    dialled: list[tuple[str, int]] = field(default_factory=list)
    dead: frozenset[str] = frozenset()

    async def __call__(self, address: str, port: int) -> httpcore2.AsyncNetworkStream:
        self.dialled.append((address, port))
        if address in self.dead:
            raise OSError("no route to host")
        return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.port)


@dataclass
class Names:
    """A resolver with the answers of a test; a list of lists is used up answer by answer, the last one stays."""

    answers: dict[str, list[list[str]]] = field(default_factory=dict)
    otherwise: list[str] = field(default_factory=lambda: [PUBLIC])
    asked: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self.answers.get(host)
        if not answers:
            return self.otherwise
        return answers.pop(0) if len(answers) > 1 else answers[0]
