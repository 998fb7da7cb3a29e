"""A facet that takes its time, so that a process can be killed while it works: one outside act and one kind of job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from deedbox import (
    Arguments,
    Effect,
    Facet,
    Inside,
    Job,
    Node,
    Object,
    Operation,
    Outside,
    Plugin,
    Section,
    Unit,
    hookimpl,
)
from deedbox.jobs import current_lease, enqueue

JOB = "patience_work"
JOB_LEASE = 3_000
DEADLINE = 2.0


class PatienceSettings(Section):
    """Whether this process works, or only hands work out."""

    works: bool = True


class Working(Arguments):
    """A piece of work and the milliseconds it takes."""

    name: str = Field(min_length=1)
    takes: int = Field(0, ge=0)


class Patience(Plugin):
    """The facet ``patience``."""

    facet = Facet(name="patience", summary="Takes its time.", settings=PatienceSettings)

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        shared: dict[str, Any] = {"effect": Effect.EXECUTION, "safe": False, "idempotent": False}
        yield Object(key="PATIENCE_QUEUE", summary="Queue work.", arguments=Working, runner=Inside(queue), **shared)
        yield Object(key="PATIENCE_WAIT", summary="Wait.", arguments=Working, runner=Outside(wait, DEADLINE), **shared)

    @hookimpl
    def deedbox_jobs(self) -> Iterable[Job]:
        if self.settings.works:
            yield Job(JOB, work, lease=JOB_LEASE)


def queue(unit: Unit, asked: Working, operation: Operation) -> str:
    enqueue(unit, JOB, asked.name, {"name": asked.name, "takes": asked.takes}, unit.now)
    return "queued"


async def wait(asked: Working, operation: Operation) -> str:
    await asyncio.sleep(asked.takes / 1000)
    return "waited"


async def work(node: Node, told: Mapping[str, Any]) -> None:
    """Say in the ledger that it began and, if the lease still holds, that it is done, and by which process."""
    lease = current_lease()

    def said(unit: Unit, kind: str) -> None:
        lease.require(unit)
        node.ledger.entry(unit, kind, "node", {"work": told["name"], "process": os.getpid()})

    await node.database.run(said, "work_began")
    await asyncio.sleep(told["takes"] / 1000)
    await node.database.run(said, "worked")
