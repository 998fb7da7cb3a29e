"""Acts outside: a start that is kept, a deadline, a lease that only expires, and an end that may come too late.

Architecture §3, decision 34.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from deedbox import Allow, Effect, Ended, Node, Object, Operation, Outside, Refusal, Reply, Text
from deedbox.app import _sweep
from deedbox.govern.act import LEASE_BEYOND_DEADLINE, interrupt_expired
from deedbox.govern.claims import CLAIMS
from deedbox.testing import FrozenClock
from tests.kernel.bare_node import a_bare_node
from tests.kernel.road_scene import Judge, Watcher, an_object, ask, by_key, rows_of, spending, toys, written

DEADLINE = 0.2
Start = Callable[..., Awaitable[Node]]


class Door:
    """An act that waits until it is let through."""

    def __init__(self, ends: Any = "done") -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self._ends = ends

    async def __call__(self, given: Text, operation: Operation) -> Any:
        self.entered.set()
        await self.opened.wait()
        if isinstance(self._ends, Exception):
            raise self._ends
        return self._ends


@pytest.fixture
async def start(tmp_path: Path, database_url: str, clock: FrozenClock) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def made(*objects: Object[Any], **more: Any) -> Node:
            plugin = toys(*objects, **more)
            return await stack.enter_async_context(a_bare_node(tmp_path, plugin, database=database_url, clock=clock))

        yield made


def leaving(call: Any, deadline: float = 30.0, **more: Any) -> Object[Any]:
    return an_object("LEAVE", Outside(call, deadline), **more)


async def begun(node: Node, door: Door, **more: Any) -> asyncio.Task[Reply]:
    task = asyncio.create_task(node.govern(spending(node, "LEAVE", "one", **more)))
    async with asyncio.timeout(5):
        await door.entered.wait()
    return task


async def test_an_act_is_in_the_ledger_before_it_leaves_and_when_it_is_back(start: Start) -> None:
    door = Door()
    node = await start(leaving(door))
    task = await begun(node, door)
    assert [line.kind for line in await written(node)] == ["started"]
    (act,) = await rows_of(node, "govern_act")
    assert act.lease_until == node.kernel.clock.now() + 30_000 + LEASE_BEYOND_DEADLINE
    door.opened.set()
    reply = await task
    first, second = await written(node)
    assert (first.kind, second.kind) == ("started", "executed")
    assert reply.receipt is not None
    assert first.said["invocation"] == second.said["invocation"] == reply.receipt.invocation == act.invocation
    assert (reply.outcome.value, reply.receipt.seq) == ("done", 2)
    assert await rows_of(node, "govern_act") == []


async def test_no_transaction_waits_for_an_act(start: Start) -> None:
    door = Door()
    node = await start(leaving(door), an_object("RUN"))
    task = await begun(node, door)
    assert (await ask(node, "RUN")).outcome.ok
    door.opened.set()
    assert (await task).outcome.ok


async def test_an_act_that_takes_too_long_has_failed(start: Start) -> None:
    node = await start(leaving(Door(), DEADLINE))
    outcome = (await ask(node, "LEAVE")).outcome
    assert (outcome.ended, outcome.code) == (Ended.FAILED, "deadline_passed")
    assert [line.kind for line in await written(node)] == ["started", "failed"]


@pytest.mark.parametrize(
    ("error", "code"), [(ValueError("a bug"), "runner_failed"), (Refusal("unreachable", 502), "unreachable")]
)
async def test_an_act_that_breaks_has_failed(start: Start, error: Exception, code: str) -> None:
    door = Door(error)
    door.opened.set()
    node = await start(leaving(door))
    outcome = (await ask(node, "LEAVE")).outcome
    assert (outcome.ended, outcome.code) == (Ended.FAILED, code)
    assert await rows_of(node, "govern_act") == []


async def test_an_act_outside_may_be_a_disclosure(start: Start) -> None:
    door = Door()
    door.opened.set()
    node = await start(leaving(door, effect=Effect.DISCLOSURE))
    assert (await ask(node, "LEAVE")).outcome.value == "done"
    assert [(line.where, line.kind) for line in await written(node)] == [("entry", "started"), ("event", "executed")]


async def test_a_price_is_paid_at_the_start_and_named_to_the_end(start: Start) -> None:
    paid: list[str] = []

    class Price:
        def apply(self, unit: Any) -> None:
            paid.append("paid")

        def describe(self) -> dict[str, Any]:
            return {"capability": "cap_1"}

    door = Door()
    node = await start(leaving(door), policies=[Judge("paid", lambda _: Allow((Price(),), policy="paid"))])
    task = await begun(node, door)
    assert paid == ["paid"]
    door.opened.set()
    reply = await task
    assert paid == ["paid"]
    assert [charge.describe() for charge in reply.outcome.charges] == [{"capability": "cap_1"}]
    assert [line.said["charges"] for line in await written(node)] == [[{"capability": "cap_1"}]] * 2


# --- leases ----------------------------------------------------------------------------------------------------------


async def test_only_an_expired_lease_is_closed(start: Start, clock: FrozenClock) -> None:
    door = Door()
    node = await start(leaving(door))
    task = await begun(node, door)
    clock.advance(35)
    assert await node.database.run(interrupt_expired, node) == 0
    door.opened.set()
    assert (await task).outcome.ok
    clock.advance(3600)
    assert await node.database.run(interrupt_expired, node) == 0


async def test_an_expired_lease_is_closed_by_whoever_finds_it_and_a_late_end_changes_nothing(
    start: Start, clock: FrozenClock
) -> None:
    door = Door()
    told: list[str] = []
    node = await start(leaving(door), observers=[Watcher(lambda _, receipt: told.append(receipt.outcome.ended))])  # type: ignore[union-attr]
    task = await begun(node, door)
    clock.advance(36)
    await asyncio.gather(_sweep(node), _sweep(node))
    started, interrupted = await written(node)
    assert (started.kind, interrupted.kind) == ("started", "interrupted")
    assert interrupted.said["invocation"] == started.said["invocation"]
    assert await rows_of(node, "govern_act") == []
    door.opened.set()
    reply = await task
    assert (reply.outcome.ended, reply.receipt) == (Ended.INTERRUPTED, None)
    assert reply.refusal is not None
    assert (reply.refusal.code, reply.refusal.status) == ("interrupted", 500)
    assert [line.kind for line in await written(node)] == ["started", "interrupted"]


async def test_an_act_cut_off_by_shutdown_is_closed_after_its_lease(start: Start, clock: FrozenClock) -> None:
    door = Door()
    node = await start(leaving(door))
    task = await begun(node, door)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await rows_of(node, "govern_act")) == 1
    clock.advance(36)
    await _sweep(node)
    assert [line.kind for line in await written(node)] == ["started", "interrupted"]


# --- an id while its act is away -------------------------------------------------------------------------------------


async def test_a_repeat_while_the_act_is_away_runs_nothing(start: Start) -> None:
    door = Door()
    node = await start(leaving(door))
    task = await begun(node, door)
    door.entered.clear()
    again = await node.govern(spending(node, "LEAVE", "one"))
    assert (again.outcome.code, again.repeat, again.undelivered, again.stored) == ("replay_rejected", True, False, b"")
    assert not door.entered.is_set()
    assert again.original["invocation_id"] == (await rows_of(node, "govern_act"))[0].invocation
    door.opened.set()
    assert (await task).outcome.ok
    assert (await node.govern(spending(node, "LEAVE", "one"))).stored == (await task).answer


async def test_an_interrupted_id_stays_spent(start: Start, clock: FrozenClock) -> None:
    door = Door()
    node = await start(leaving(door))
    task = await begun(node, door)
    clock.advance(36)
    await _sweep(node)
    door.opened.set()
    await task
    again = await node.govern(spending(node, "LEAVE", "one", life=100_000))
    assert (again.outcome.code, again.undelivered) == ("replay_rejected", False)
    assert [line.kind for line in await written(node)] == ["started", "interrupted", "refused"]


async def test_a_renewal_during_the_act_keeps_the_id_as_long_as_it_says(start: Start, clock: FrozenClock) -> None:
    door = Door()
    node = await start(leaving(door), policies=[Judge("by-key", by_key)])
    task = await begun(node, door)
    renewed = clock.now() + 40 * 3_600_000
    await node.govern(spending(node, "LEAVE", "one", life=renewed - clock.now()))
    door.opened.set()
    await task
    row = await node.database.run(lambda unit: unit.fact(CLAIMS, "test/one"))
    assert row is not None
    assert (row["state"], row["kept_until"]) == ("done", renewed + 300_000)
