"""The foundation, complete before the first plugin exists: clock, keys, database, ledger, settings, the way out."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from deedbox.clock import Clock, Entropy, Ids, SystemClock
from deedbox.identity import agents as own_agents
from deedbox.identity.agents import Agents
from deedbox.ledger.chain import Ledger
from deedbox.logs import logger
from deedbox.metrics import Metrics
from deedbox.outgoing import Outgoing
from deedbox.settings import Settings
from deedbox.storage.database import Database


@dataclass(frozen=True)
class Kernel:
    """What every plugin is given."""

    settings: Settings
    clock: Clock
    ids: Ids
    database: Database
    ledger: Ledger
    agents: Agents
    outgoing: Outgoing
    metrics: Metrics
    log: Any

    @property
    def domain(self) -> str:
        return self.settings.node.domain

    @property
    def base_url(self) -> str:
        """Where others reach us; ports are the listener's business, names are ours."""
        return f"https://{self.domain}"

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.settings.node.zone)

    async def close(self) -> None:
        await self.outgoing.close()
        await asyncio.to_thread(self.database.close)


async def open_kernel(
    settings: Settings,
    *,
    clock: Clock | None = None,
    entropy: Entropy = os.urandom,
    outgoing: Outgoing | None = None,
) -> Kernel:
    """Open the database and the keys; the schema must be current (``storage.migrate``)."""
    clock = clock or SystemClock()
    ids = Ids(clock, entropy)
    node = settings.node
    database = Database(node.database, clock)
    agents = await database.run(own_agents.ensure, node.domain, node.agents, node.keys, entropy)
    return Kernel(
        settings=settings,
        clock=clock,
        ids=ids,
        database=database,
        ledger=Ledger(node.domain, ids),
        agents=agents,
        outgoing=outgoing or Outgoing(),
        metrics=Metrics(),
        log=logger(node=node.domain),
    )
