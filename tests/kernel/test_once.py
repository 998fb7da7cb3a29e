"""Once: an id is spent by whoever is believed, before the effect, and its answer is given once (decisions 30, 31)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deedbox import Effect, Ended, Node, Operation, Refusal, Reply, Text, Unit, app
from deedbox.app import _mark_handed
from deedbox.govern.claims import CLAIMS, KEPT_AFTER_EXPIRY, KEPT_AT_LEAST, prune
from deedbox.govern.processes import LEASE, Processes
from deedbox.testing import FrozenClock
from tests.kernel.bare_node import a_bare_node
from tests.kernel.road_scene import Badge, an_object, ask, rows_of, spending, toys, written

HOUR = 3_600_000


class Counter:
    """An object that counts its runs in the database."""

    def __call__(self, unit: Unit, given: Text, operation: Operation) -> str:
        count = 1 + int(unit.all("select coalesce(max(used_until), 0) as n from govern_quota")[0].n)
        unit.change("delete from govern_quota")
        unit.change("insert into govern_quota (key, used_until) values ('runs', :n)", n=count)
        if given.text == "refuse":
            raise Refusal("not_now", 409)
        if given.text == "break":
            raise ValueError("a bug")
        return f"run {count}"


@pytest.fixture
async def node(tmp_path: Path, database_url: str, clock: FrozenClock) -> AsyncIterator[Node]:
    plugin = toys(an_object("COUNT", Counter()), an_object("SHOW", effect=Effect.DISCLOSURE), an_object("NO_RUN"))
    async with a_bare_node(tmp_path, plugin, database=database_url, clock=clock) as made:
        yield made


async def count(node: Node, id_: str = "one", **more: Any) -> Reply:
    return await node.govern(spending(node, "COUNT", id_, **more))


async def claim_of(node: Node, id_: str = "one") -> Any:
    return await node.database.run(lambda unit: unit.fact(CLAIMS, f"test/{id_}"))


async def runs(node: Node) -> int:
    rows = await rows_of(node, "govern_quota")
    return int(rows[0].used_until) if rows else 0


# --- one run an id ---------------------------------------------------------------------------------------------------


async def test_a_repeat_runs_nothing_and_names_the_first(node: Node) -> None:
    first = await count(node)
    again = await count(node)
    assert (first.outcome.value, first.repeat) == ("run 1", False)
    assert (again.outcome.code, again.outcome.status, again.repeat) == ("replay_rejected", 409, True)
    assert (again.stored, again.undelivered) == (first.answer, False)
    assert first.receipt is not None
    assert again.original["invocation_id"] == first.receipt.invocation
    assert await runs(node) == 1
    assert [line.kind for line in await written(node)] == ["executed", "refused"]


@pytest.mark.case("fed:C1", "fed:C2")
async def test_of_copies_that_come_at_once_one_runs(node: Node) -> None:
    replies = await asyncio.gather(*(count(node) for _ in range(200)))
    assert [reply.outcome.ok for reply in replies].count(True) == 1
    assert {reply.outcome.code for reply in replies} == {None, "replay_rejected"}
    assert await runs(node) == 1


async def test_another_message_under_a_spent_id_is_a_repeat_without_the_original(node: Node) -> None:
    first = await count(node)
    other = await count(node, digest="other")
    assert (other.outcome.code, other.repeat, other.original, other.stored) == ("replay_rejected", True, {}, None)
    assert (await claim_of(node))["reply"] == first.answer
    assert await runs(node) == 1


async def test_without_an_id_every_asking_is_new(node: Node) -> None:
    assert [(await ask(node, "COUNT")).outcome.value for _ in range(2)] == ["run 1", "run 2"]
    assert await rows_of(node, "govern_claim") == []


# --- what spends an id -----------------------------------------------------------------------------------------------


@pytest.mark.case("fed:C4")
@pytest.mark.parametrize("badge", [Badge("alice", good=False), object()])
async def test_whoever_is_not_believed_spends_nothing(node: Node, badge: Any) -> None:
    forged = await count(node, credential=badge)
    assert forged.outcome.status == 401
    assert await claim_of(node) is None
    assert (await count(node)).outcome.value == "run 1"


@pytest.mark.parametrize(
    ("key", "text", "code", "ended"),
    [
        ("NO_RUN", "", "denied", Ended.REFUSED),
        ("NOWHERE", "", "unknown_object", Ended.REFUSED),
        ("COUNT", {"text": 1}, "bad_arguments", Ended.REFUSED),
        ("COUNT", "refuse", "not_now", Ended.REFUSED),
        ("COUNT", "break", "runner_failed", Ended.FAILED),
        ("SHOW", "", None, Ended.EXECUTED),
    ],
)
async def test_everything_after_authentication_spends_the_id(
    node: Node, key: str, text: Any, code: str | None, ended: Ended
) -> None:
    asking = spending(node, key, "one")
    asking.arguments = text
    reply = await node.govern(asking)
    assert (reply.outcome.code, reply.outcome.ended) == (code, ended)
    assert (await claim_of(node))["state"] == "done"
    again = await count(node)
    assert (again.outcome.code, again.stored) == ("replay_rejected", reply.answer)
    assert await runs(node) == 0


async def test_an_objection_comes_after_the_id_is_spent(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    believer = node.authenticator(Badge)
    proves = believer.prepare

    async def objects(*given: Any) -> Any:
        return replace(await proves(*given), objection=Refusal("bad_args", 400, "not strings"))

    monkeypatch.setattr(believer, "prepare", objects)
    assert (await count(node)).outcome.code == "bad_args"
    monkeypatch.undo()
    assert (await count(node)).outcome.code == "replay_rejected"


# --- an answer that was not given ------------------------------------------------------------------------------------


async def test_an_answer_nobody_took_is_given_to_the_repeat_once(node: Node) -> None:
    first = await count(node)
    await node.not_given(first)
    again = await count(node)
    assert (again.undelivered, again.answer, again.repeat) == (True, first.answer, True)
    node.given(again)
    await _mark_handed(node)
    third = await count(node)
    assert (third.undelivered, third.answer != first.answer) == (False, True)
    assert await runs(node) == 1


async def test_a_redelivery_that_is_lost_too_is_given_again(node: Node) -> None:
    await node.not_given(await count(node))
    await node.not_given(await count(node))
    assert (await count(node)).undelivered


async def test_of_repeats_that_come_at_once_one_is_given_the_lost_answer(node: Node) -> None:
    await node.not_given(await count(node))
    again = await asyncio.gather(*(count(node) for _ in range(20)))
    assert [reply.undelivered for reply in again].count(True) == 1


async def test_another_message_is_never_given_the_lost_answer(node: Node) -> None:
    await node.not_given(await count(node))
    assert not (await count(node, digest="other")).undelivered
    assert (await count(node)).undelivered


async def process_ends(node: Node, clock: FrozenClock) -> None:
    """The process that ran until now is gone; another takes its place."""
    object.__setattr__(node, "processes", Processes("proc_next", shared=node.processes._shared))
    await node.database.run(node.processes.renew)
    clock.advance(LEASE / 1000 + 1)


async def test_an_answer_in_flight_is_not_given_twice_while_its_process_lives(node: Node) -> None:
    await count(node)  # neither given nor known to be lost
    assert not (await count(node)).undelivered


async def test_an_answer_its_process_took_with_it_is_given_to_the_repeat(node: Node, clock: FrozenClock) -> None:
    first = await count(node)
    await process_ends(node, clock)
    again = await count(node)
    assert (again.undelivered, again.answer) == (True, first.answer)
    assert not (await count(node)).undelivered
    assert await runs(node) == 1


async def test_an_answer_that_was_handed_out_stays_so_when_its_process_is_gone(node: Node, clock: FrozenClock) -> None:
    node.given(await count(node))
    await _mark_handed(node)
    await process_ends(node, clock)
    assert not (await count(node)).undelivered


async def test_one_lost_answer_does_not_hide_behind_its_group(node: Node, clock: FrozenClock) -> None:
    given, lost = await asyncio.gather(count(node, "given"), count(node, "lost"))
    node.given(given)
    await node.not_given(lost)
    await _mark_handed(node)
    await process_ends(node, clock)
    assert not (await count(node, "given")).undelivered
    assert (await count(node, "lost")).undelivered


async def test_a_group_is_marked_only_when_all_of_it_is_given(node: Node, clock: FrozenClock) -> None:
    given, lost = await asyncio.gather(count(node, "given"), count(node, "lost"))
    node.given(given)
    await _mark_handed(node)
    await process_ends(node, clock)
    assert (await count(node, "lost")).undelivered
    if given.group == lost.group:
        assert (await count(node, "given")).undelivered  # given twice rather than never


async def test_a_neighbour_that_lives_keeps_its_answers(node: Node, clock: FrozenClock) -> None:
    """On a shared database the lease tells; an embedded one has no neighbours."""
    await node.database.run(node.processes.renew)
    await count(node)
    mine = node.processes
    object.__setattr__(node, "processes", Processes("proc_next", shared=True))
    assert not (await count(node)).undelivered
    clock.advance(LEASE / 1000 + 1)
    assert (await count(node, life=200_000)).undelivered
    assert mine.own != node.processes.own


# --- how long --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("life", "kept"), [(60_000, KEPT_AT_LEAST), (30 * HOUR, 30 * HOUR + KEPT_AFTER_EXPIRY)])
async def test_an_id_is_kept_a_day_and_longer_than_the_message(node: Node, life: int, kept: int) -> None:
    await count(node, life=life)
    assert (await claim_of(node))["kept_until"] == node.kernel.clock.now() + kept


async def test_a_renewal_is_the_same_message_and_keeps_its_id_longer(node: Node) -> None:
    await count(node)
    renewed = await count(node, life=30 * HOUR)
    assert renewed.outcome.code == "replay_rejected"
    assert (await claim_of(node))["kept_until"] == node.kernel.clock.now() + 30 * HOUR + KEPT_AFTER_EXPIRY
    await count(node, life=1)
    assert (await claim_of(node))["kept_until"] == node.kernel.clock.now() + 30 * HOUR + KEPT_AFTER_EXPIRY


async def test_another_message_does_not_renew_an_id(node: Node) -> None:
    await count(node)
    await count(node, digest="other", life=30 * HOUR)
    assert (await claim_of(node))["kept_until"] == node.kernel.clock.now() + KEPT_AT_LEAST


@pytest.mark.case("fed:C5", "fed:C6")
async def test_ids_are_forgotten_by_our_own_clock_alone(node: Node, clock: FrozenClock) -> None:
    await count(node, "old")
    clock.advance(12 * 3600)
    for number in range(300):  # newer traffic pushes nothing out
        await count(node, f"new {number}")
    assert await node.database.run(prune) == 0
    clock.advance(12 * 3600 + 1)
    assert await node.database.run(prune) == 1
    assert await claim_of(node, "old") is None
    assert (await claim_of(node, "new 0")) is not None


async def test_pruning_takes_the_oldest_a_few_hundred_at_a_time(node: Node, clock: FrozenClock) -> None:
    await asyncio.gather(*(count(node, f"{number}") for number in range(30)))
    node.given(await count(node, "given"))
    await _mark_handed(node)
    clock.advance(25 * 3600)
    assert await node.database.run(prune, 20) == 20
    assert len(await rows_of(node, "govern_claim")) == 11
    await node.database.run(prune)
    assert await rows_of(node, "govern_claim") == []
    assert await rows_of(node, "govern_handed") == []


async def test_a_sweep_forgets_all_that_is_due_however_much(
    node: Node, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PRUNED_AT_ONCE", 7)
    await asyncio.gather(*(count(node, f"{number}") for number in range(40)))
    clock.advance(25 * 3600)
    await app._sweep(node)
    assert await rows_of(node, "govern_claim") == []


# --- after a restart -------------------------------------------------------------------------------------------------


async def test_ids_stay_spent_over_a_restart(tmp_path: Path, database_url: str, clock: FrozenClock) -> None:
    plugin = toys(an_object("COUNT", Counter()))
    first: Reply | None = None
    for _ in range(2):
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(a_bare_node(tmp_path, plugin, database=database_url, clock=clock))
            reply = await count(made)
            if first is None:
                first = reply
                made.given(reply)
                await _mark_handed(made)
            else:
                assert (reply.outcome.code, reply.stored) == ("replay_rejected", first.answer)
                assert await runs(made) == 1
