"""For tests of plugins and of the node itself: real nodes on loopback sockets, held time, ledgers verified at the end.

A node here is the product: a database in a file, a listener, and in development TLS under a throw-away authority
(RFC 6761 §6.2). Nothing is simulated but the clock.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from deedbox import serve, settings
from deedbox.cli.books import copy_ledger
from deedbox.clock import Clock, Entropy, SystemClock, parse_instant
from deedbox.facets import Plugin
from deedbox.govern.owner import HEADER, make_owner_key
from deedbox.kernel import Kernel, open_kernel
from deedbox.ledger.checkpoint import VerifierKey
from deedbox.ledger.records import SqliteFile
from deedbox.ledger.verify import Trust, verify
from deedbox.node import Node, assemble, facet_classes, schema_histories
from deedbox.outgoing import Outgoing
from deedbox.outgoing.answers import joined
from deedbox.storage.database import sqlite_path
from deedbox.storage.migrate import upgrade

Facets = Mapping[str, Mapping[str, Any]]
PLAIN_FACETS: Facets = {"wellknown": {}}


class FrozenClock:
    """Time that stands until the test moves it; milliseconds since the epoch."""

    def __init__(self, at: str | int = "2026-01-02T03:04:05.000Z") -> None:
        instant = parse_instant(at) if isinstance(at, str) else at
        if instant is None:
            raise ValueError(f"not an instant: {at}")
        self._now = instant

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> int:
        """Let that much time pass at once; the new instant."""
        self._now += round(seconds * 1000)
        return self._now


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a node answered; header names in lower case, repeated ones joined with a comma."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class RunningNode:
    """A node that serves: the inside as ``node``, the outside by ``request``; ``owner_key`` is its root credential."""

    node: Node
    port: int
    owner_key: str
    folder: Path
    clock: Clock
    trust: ssl.SSLContext | None = None
    """The client context that believes its certificate; nothing where it speaks plain HTTP."""

    @property
    def domain(self) -> str:
        return self.node.domain

    @property
    def kernel(self) -> Kernel:
        return self.node.kernel

    @property
    def base_url(self) -> str:
        return f"https://{self.domain}:{self.port}" if self.trust else f"http://127.0.0.1:{self.port}"

    def agent(self, name: str = "node") -> str:
        return f"{name}@{self.domain}"

    async def request(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """One HTTP/1.1 exchange on a connection of its own; ``headers`` replace the ones sent by themselves."""
        sent = {"host": self.domain, "connection": "close"} | {
            key.lower(): text for key, text in (headers or {}).items()
        }
        if body or method not in ("GET", "HEAD", "OPTIONS"):
            sent.setdefault("content-length", str(len(body)))
            sent.setdefault("content-type", "application/json")
        head = "".join(f"{name}: {text}\r\n" for name, text in sent.items())
        return await self.raw(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

    async def raw(self, sent: bytes) -> HttpAnswer:
        """Exactly these bytes, then everything the node says until it hangs up."""
        name = self.domain if self.trust else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust, server_hostname=name)
        try:
            writer.write(sent)
            await writer.drain()
            return _answer(await reader.read())
        finally:
            writer.close()
            with suppress(ConnectionResetError):  # it may hang up on what it did not read
                await writer.wait_closed()

    async def get(self, target: str, **headers: str) -> HttpAnswer:
        """``headers`` with underscores for hyphens."""
        return await self.request("GET", target, headers={key.replace("_", "-"): text for key, text in headers.items()})

    async def post(self, target: str, value: Any, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        """Bytes as they are, anything else as JSON."""
        body = value if isinstance(value, bytes) else orjson.dumps(value)
        return await self.request("POST", target, body, headers)

    async def as_owner(self, method: str, target: str, body: bytes = b"") -> HttpAnswer:
        return await self.request(method, target, body, {HEADER: self.owner_key})


def _answer(raw: bytes) -> HttpAnswer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    if not first.startswith(b"HTTP/1."):
        raise ConnectionError(f"no answer: {raw[:80]!r}")
    fields = (line.partition(b":") for line in lines)
    headers = joined((name, text.strip()) for name, _, text in fields)
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return HttpAnswer(int(first.split(b" ")[1]), headers, body)


def _unchunked(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        parts.append(body[:length])
        body = body[length + 2 :] if length else b""
    return b"".join(parts)


def settings_for(folder: Path, domain: str, facets: Facets, **sections: Mapping[str, Any]) -> settings.Settings:
    """Settings with everything kept in ``folder``; ``sections`` such as ``node`` and ``limits`` are laid over them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / "deedbox.toml"
    file.write_text(f'[node]\ndomain = "{domain}"\n')
    return settings.load(file, {"facets": facets, **sections})


@asynccontextmanager
async def a_node(
    folder: Path,
    domain: str = "alpha.test",
    *,
    facets: Facets = PLAIN_FACETS,
    plugins: Mapping[str, type[Plugin]] | None = None,
    clock: Clock | None = None,
    entropy: Entropy = os.urandom,
    development: Path | None = None,
    outgoing: Outgoing | None = None,
    verified: bool = True,
    **sections: Mapping[str, Any],
) -> AsyncIterator[RunningNode]:
    """A node that serves while the block lasts, and whose ledger is then verified from its first entry.

    Nodes with the same ``development`` folder resolve and trust one another over HTTPS; without one a node speaks
    plain HTTP and reaches nobody under ``.test``. ``plugins`` are classes by facet name that are not installed.
    ``sections`` override settings: ``limits={"inbox": {"rate": "9/min"}}``, ``node={"agents": ["node", "mail"]}``.
    A second block over the same folder is the same node started again, with a new owner key.
    """
    clock = clock or SystemClock()
    sections["node"] = {"development": development, **sections.get("node", {})}
    chosen = settings_for(folder, domain, facets, **sections)
    classes = facet_classes(chosen.facets, plugins or {})
    chosen.node.keys.mkdir(mode=0o700, exist_ok=True)
    owner_key = make_owner_key(chosen.node.keys, entropy)
    await asyncio.to_thread(upgrade, chosen.node.database, schema_histories(classes))
    switch = serve.development_of(chosen, classes)
    outgoing = outgoing or Outgoing(development=switch, clock=clock)
    kernel = await open_kernel(chosen, clock=clock, entropy=entropy, outgoing=outgoing)
    try:
        node = assemble(kernel, classes)
        with _listening(switch) as (sock, port, context):
            trust = switch.trust() if switch else None
            async with serve.serving(node, sock, context, access_log=False):
                yield RunningNode(node, port, owner_key, folder, clock, trust)
    finally:
        await kernel.close()
    if verified:
        await asyncio.to_thread(verify_ledger, kernel)


@contextmanager
def _listening(
    switch: serve.Development | None,
) -> Iterator[tuple[socket.socket, int, ssl.SSLContext | None]]:
    with ExitStack() as stack:
        sock = stack.enter_context(serve.listener("127.0.0.1:0"))
        port = sock.getsockname()[1]
        context = stack.enter_context(switch.serving(port)) if switch else None
        yield sock, port, context


def verify_ledger(kernel: Kernel) -> int:
    """Verify a stopped node's ledger from its first entry, with its events and signed heads; how many entries.

    One on PostgreSQL is copied first, as `deedbox ledger verify` does. Raises ``AssertionError``.
    """
    url = kernel.settings.node.database
    path = sqlite_path(url)
    if path is not None:
        return _verified(kernel, path)
    with tempfile.TemporaryDirectory(prefix="deedbox-ledger-") as folder:
        copy = Path(folder) / "ledger.db"
        copy_ledger(url, copy)
        return _verified(kernel, copy)


def _verified(kernel: Kernel, file: Path) -> int:
    key = VerifierKey(kernel.domain, kernel.agents.ledger.public.point)
    verdict = verify(SqliteFile(file), Trust(origin=kernel.domain, keys=(key,), payload_form=True))
    counts = verdict.counts
    whole = verdict.good and counts.checkpoints == counts.checkpoints_signed and not counts.events_unsealed
    if not whole:
        raise AssertionError(f"the ledger of {kernel.domain}: {verdict} {counts}")
    return verdict.size
