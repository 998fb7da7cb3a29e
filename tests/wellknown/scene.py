"""A node that resolves public names, which all lead to one scripted HTTPS peer on loopback."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox import Directory, Node
from deedbox.app import running
from deedbox.govern.owner import make_owner_key
from deedbox.identity.keys import P256Pair
from deedbox.kernel import open_kernel
from deedbox.node import assemble, facet_classes, schema_histories
from deedbox.outgoing import Outgoing
from deedbox.refusals import Refusal
from deedbox.storage.migrate import upgrade
from deedbox.testing import FrozenClock, settings_for, verify_ledger
from deedbox_wellknown.directory import PATH
from tests.kernel.https_peer import Authority, Names, Peer, Script, Wire, plain, serving

NAMES = ("beta.example", "gamma.example")
BETA = "node@beta.example"


def entry(agent: str, pair: P256Pair, **more: Any) -> dict[str, Any]:
    """An agent's entry as its domain publishes it."""
    domain = agent.partition("@")[2].lower()
    inbox = f"https://{domain}/oip/inbox"
    return {"id": agent, "alg": "ES256", "public_key_jwk": pair.public.jwk, "inbox": inbox, **more}


def listed(pair: P256Pair, **window: str | None) -> dict[str, Any]:
    """A key in ``keys`` or ``previous_keys``."""
    return {"kid": pair.public.thumbprint, "public_key_jwk": pair.public.jwk, **window}


def document(*entries: dict[str, Any], **more: Any) -> bytes:
    return orjson.dumps({"protocol": "oip-message/1", "agents": list(entries), **more})


@dataclass
class Scene:
    """Our node, the peer, and the time they share."""

    node: Node
    peer: Peer
    clock: FrozenClock
    names: Names
    owner_key: str

    @property
    def directory(self) -> Any:
        return self.node.port(Directory)  # type: ignore[type-abstract]

    @property
    def fetches(self) -> int:
        return len(self.peer.requests)

    def publish(self, *entries: dict[str, Any], headers: tuple[str, ...] = (), **more: Any) -> None:
        self.peer.scripts[PATH] = plain(document(*entries, **more), *headers)

    def answer(self, script: Script) -> None:
        self.peer.scripts[PATH] = script

    async def resolve(self, agent: str = BETA) -> Any:
        return await self.directory.resolve(agent, self.clock.now())

    async def refresh(self, agent: str = BETA) -> Any:
        return await self.directory.refresh(agent, self.clock.now())

    def known(self, agent: str = BETA) -> Any:
        return self.directory.known(agent, self.clock.now())

    async def failure(self, agent: str = BETA) -> tuple[str, int | None]:
        """The reason an agent is refused for, and how long to wait; resolving must fail."""
        with pytest.raises(Refusal) as refused:
            await self.resolve(agent)
        refusal = refused.value
        assert (refusal.code, refusal.status) == ("sender_unverifiable", 401)
        return str(refusal.extra["resolve_failure"]), refusal.retry_after

    async def asked(self) -> None:
        """Wait until the peer has been asked for something."""
        while not self.peer.requests:  # noqa: ASYNC110  # the peer is a list of what it saw
            await asyncio.sleep(0.005)

    async def settle(self) -> None:
        """Let background fetches end."""
        while self.directory._flights:
            await asyncio.gather(*self.directory._flights.values(), return_exceptions=True)

    async def entries(self, kind: str = "peer_key") -> list[dict[str, Any]]:
        """The payloads of a kind of ledger entry, oldest first."""
        asked = "select e.header, p.payload from ledger_entry e join ledger_payload p on p.seq = e.seq order by e.seq"
        rows = await self.node.kernel.database.read(lambda reader: reader.all(asked))
        return [orjson.loads(row.payload) for row in rows if orjson.loads(row.header)["kind"] == kind]


@asynccontextmanager
async def a_scene(
    folder: Path,
    *facets: str,
    database: str | None = None,
    clock: FrozenClock | None = None,
    **table: Any,
) -> AsyncIterator[Scene]:
    """Starts both; ``table`` is the facet's own, ``facets`` name others beside it.

    A second scene over the same folder is the node started again.
    """
    clock = clock or FrozenClock()
    authority = Authority(folder, NAMES)
    peer, names = Peer(), Names()
    async with serving(peer, authority.server()):
        way = Outgoing(resolver=names, ssl_context=authority.client(), connect=Wire(peer.port), clock=clock)
        node = {"database": database or f"sqlite:///{folder / 'deedbox.db'}"}
        settings = settings_for(
            folder / "node", "alpha.example", {"wellknown": table, **{name: {} for name in facets}}, node=node
        )
        settings.node.keys.mkdir(mode=0o700, exist_ok=True)
        owner_key = make_owner_key(settings.node.keys, os.urandom)
        classes = facet_classes(settings.facets, {})
        await asyncio.to_thread(upgrade, settings.node.database, schema_histories(classes))
        kernel = await open_kernel(settings, clock=clock, outgoing=way)
        try:
            assembled = assemble(kernel, classes)
            async with running(assembled):
                yield Scene(assembled, peer, clock, names, owner_key)
        finally:
            await kernel.close()
        await asyncio.to_thread(verify_ledger, kernel)
