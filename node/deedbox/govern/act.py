"""Step 6, act: inside the unit, or outside under a lease with a deadline."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from sqlmodel import Field

from deedbox.catalog import Inside, Outside
from deedbox.govern.claims import STARTED, claim
from deedbox.govern.record import statement
from deedbox.intent import Effect, Ended, Operation, Outcome, Output
from deedbox.refusals import Refusal
from deedbox.storage.tables import Rows, Table

if TYPE_CHECKING:
    from deedbox.ledger.receipt import Receipt
    from deedbox.node import Node
    from deedbox.storage.unit import Unit

LEASE_BEYOND_DEADLINE = 5_000
_NOTHING_YET = Output(b"", "")


class Act(Table, table=True):
    """An act under way outside: its start in the ledger, and the instant until which its process answers for it."""

    invocation: str = Field(primary_key=True)
    seq: int
    lease_until: int
    actor: str
    object_key: str


ACTS = Rows(Act, key="invocation")


@dataclass(frozen=True, slots=True)
class Started:
    """An outside act whose start is committed."""

    operation: Operation
    receipt: Receipt
    charges: tuple[Any, ...]


def act_inside(unit: Unit, node: Node, operation: Operation, runner: Inside[Any]) -> Outcome:
    """Run in the open unit; an execution has a savepoint, a disclosure only notes to lose."""
    mark = unit.mark()
    try:
        if operation.effect is Effect.DISCLOSURE:
            return Outcome.executed(unit.guarded(runner.call, unit, operation.arguments, operation))
        with unit.savepoint():
            return Outcome.executed(runner.call(unit, operation.arguments, operation))
    except Refusal as refusal:
        unit.take_back(mark)
        return Outcome.refused(refusal)
    except Exception:
        unit.take_back(mark)
        node.log.exception("runner_failed", object=operation.intent.object_key)
        return Outcome.failed()


def start(unit: Unit, node: Node, operation: Operation, runner: Outside[Any], charges: tuple[Any, ...]) -> Started:
    """Commit that an act begins: its entry, its lease, its claim."""
    outcome = Outcome(Ended.EXECUTED, charges=charges)
    said = {**statement(operation, outcome, _NOTHING_YET), "ended": "started"}
    receipt = node.ledger.entry(
        unit,
        "started",
        operation.principal.id,
        said,
        subject=operation.intent.object_key,
    )
    until = unit.now + int(runner.deadline * 1000) + LEASE_BEYOND_DEADLINE
    row = (operation.invocation, receipt.seq, until, operation.principal.id, operation.intent.object_key)
    unit.note(ACTS, row)
    meta = orjson.dumps({"invocation": operation.invocation}).decode()
    claim(unit, operation.intent, node.processes.own, state=STARTED, reply=None, meta=meta)
    return Started(operation, receipt, charges)


async def act_outside(node: Node, started: Started) -> Outcome:
    """Run, holding no transaction, until the deadline."""
    operation = started.operation
    found = operation.object
    assert found is not None  # noqa: S101  # `start` was given this object
    assert isinstance(found.runner, Outside)  # noqa: S101  # and this runner
    try:
        async with asyncio.timeout(found.runner.deadline):
            value = await found.runner.call(operation.arguments, operation)
        return Outcome.executed(value, started.charges)
    except Refusal as refusal:
        return Outcome.failed(refusal.code, started.charges)
    except TimeoutError:
        return Outcome.failed("deadline_passed", started.charges)
    except Exception:
        node.log.exception("runner_failed", object=operation.intent.object_key)
        return Outcome.failed(charges=started.charges)


def end_lease(unit: Unit, started: Started) -> bool:
    """Give the lease back; false if somebody has already closed the act as interrupted."""
    return unit.change("delete from govern_act where invocation = :id", id=started.operation.invocation) == 1


def interrupt_expired(unit: Unit, node: Node) -> int:
    """Close acts whose process went silent, how many; only an expired lease is closed (decision 34)."""
    expired = unit.all("select * from govern_act where lease_until < :now order by lease_until", now=unit.now)
    for row in expired:
        said = {"object": row.object_key, "actor": row.actor, "ended": "interrupted", "invocation": row.invocation}
        node.ledger.entry(
            unit,
            "interrupted",
            row.actor,
            said,
            subject=row.object_key,
            refs=(f"entry:{row.seq}",),
            invocation=row.invocation,
        )
        unit.change("delete from govern_act where invocation = :id", id=row.invocation)
    return len(expired)
