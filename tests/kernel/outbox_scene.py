"""A sending node and its peer, with time in the test's hands: what the tests of the outbox share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import orjson

from deedbox import Facet, Node, Plugin, Receipt, Unit, hookimpl
from deedbox.delivery import SentExchange
from deedbox.envelope.outbox import Delivery, Letter, message_status, queue_message
from deedbox.envelope.outbox.tables import DELIVER
from deedbox.jobs import Claimed, perform
from deedbox.jobs.table import claim
from deedbox.outgoing import Outgoing
from deedbox.testing import FrozenClock
from deedbox_https import Https
from deedbox_wellknown import WellKnown
from deedbox_wellknown.development import Development
from tests.kernel.bare_node import a_bare_node
from tests.kernel.outbox_peer import BETA, Beta, a_beta

ALPHA = "node@alpha.test"
TOKEN = 'an "opaque" handle of beta, which no pattern for credentials would find'


class Watcher(Plugin):
    """Sees what the outbox says on the road."""

    facet = Facet(name="watcher", summary="For tests.")
    seen: ClassVar[list[SentExchange]] = []

    name = "watcher"
    transitions = frozenset({"FED_SENT"})
    changes_rows = False

    def observe(self, unit: Unit, receipt: Receipt) -> None:
        assert receipt.operation is not None
        if receipt.outcome is not None and receipt.outcome.ok:
            self.seen.append(receipt.operation.arguments)

    @hookimpl
    def deedbox_observers(self) -> list[Watcher]:
        return [self]


@dataclass
class Scene:
    """``alpha.test`` with its outbox, ``beta.test`` opposite."""

    node: Node
    beta: Beta
    clock: FrozenClock
    folder: Path
    seen: list[SentExchange] = field(default_factory=list)

    async def queue(self, kind: str = "query", run_at: int | None = None, **letter: Any) -> str:
        """A message for a worker; its id."""
        letter = {"sender": ALPHA, "recipient": BETA, "conversation": "c1", "body": {"text": "hello"}} | letter

        def unit_of(unit: Unit) -> str:
            return queue_message(unit, self.node, Letter(kind=kind, **letter), run_at=run_at)

        found: str = await self.node.database.run(unit_of)
        return found

    async def turn(self) -> int:
        """Whatever is due now is done, as a worker would; how many jobs."""
        claimed = await self.claimed()
        for job in claimed:
            await perform(self.node, job)
        return len(claimed)

    async def claimed(self) -> list[Claimed]:
        job = self.node.jobs[DELIVER]
        token = self.node.ids.new("lease")
        found: list[Claimed] = await self.node.database.run(claim, DELIVER, job.lease, token, 8)
        return found

    async def standing(self, message_id: str) -> Delivery:
        found: Delivery = await self.node.database.read(message_status, message_id)
        return found

    async def until_next(self, message_id: str) -> float:
        """Let the time of the next attempt come, and make it; the seconds waited."""
        at = (await self.standing(message_id)).next_at
        assert at is not None
        waited = (at - self.clock.now()) / 1000
        self.clock.advance(waited)
        assert await self.turn() == 1
        return waited

    async def rows(self, sql: str) -> list[Any]:
        found: list[Any] = await self.node.database.read(lambda reader: reader.all(sql))
        return found

    async def events(self) -> list[dict[str, Any]]:
        return [orjson.loads(bytes(row.event)) for row in await self.rows("select event from ledger_event order by id")]


@asynccontextmanager
async def a_scene(folder: Path, database: str) -> AsyncIterator[Scene]:
    clock = FrozenClock()
    development = folder / "development"
    outgoing = Outgoing(development=Development("alpha.test", development), clock=clock)
    Watcher.seen.clear()
    async with a_beta(development, clock) as beta:
        plugins = (WellKnown, Https, Watcher)
        node_of = a_bare_node(
            folder / "alpha", *plugins, database=database, clock=clock, outgoing=outgoing, development=development
        )
        async with node_of as node:
            yield Scene(node, beta, clock, folder, Watcher.seen)
