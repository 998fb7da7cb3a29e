"""One of two processes is killed: the other goes on, takes over what was held, and gives what was never given."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence

import pytest

from deedbox_conformance.clause import Failed
from deedbox_conformance.clauses import scenes
from deedbox_conformance.client import Unreachable
from deedbox_conformance.probe import Exchange
from deedbox_conformance.wire import Envelope
from tests.suites.postgres.pair import Pair, Process

LOAD = 60
GONE_AFTER = 32
"""Seconds: a process is believed to live for 30 without a word (decision 34)."""
SWEPT_WITHIN = 75
"""Seconds: an act's lease ends five after its deadline of two, and the sweep comes once a minute."""
KEPT = "select exists (select 1 from govern_claim where key like 'inbox/' || %(id)s || '/%%')"
MARKED = (
    "select exists (select 1 from govern_handed h join govern_claim c on h.key = c.owner || '/' || c.grp"
    " where c.key like 'inbox/' || %(id)s || '/%%')"
)


@pytest.mark.case("fed:G3", "fed:D7")
async def test_the_other_one_takes_over(mortal: Pair) -> None:
    dead, alive = await holding_work(mortal)
    token = await alive.mint(LOAD)
    acting = asyncio.create_task(dead.as_owner("PATIENCE_WAIT", name="act", takes=60_000))
    await mortal.until("select count(*) = 1 from govern_act")
    orders = [await dead.invoke(token.text) for _ in range(LOAD)]
    load = [asyncio.create_task(dead.tell(order)) for order in orders]
    question = await killed_before_marking(mortal, dead)
    told = await asyncio.gather(*load, return_exceptions=True)
    assert isinstance((await asyncio.gather(acting, return_exceptions=True))[0], Unreachable)
    await asyncio.gather(
        acknowledged_is_kept(alive, told),
        given_when_the_lease_is_over(alive, [question, *unanswered(orders, told)]),
        work_is_done_once(mortal, dead, alive),
        act_is_closed(mortal),
    )
    assert mortal.used(token) == LOAD
    assert len(mortal.entries("executed")) >= LOAD


async def holding_work(pair: Pair) -> tuple[Process, Process]:
    """The process that has taken up a long job, and the other one."""
    one, other = pair.processes
    await one.as_owner("PATIENCE_QUEUE", name="long", takes=8_000)
    await pair.until("select count(*) > 0 from ledger_entry where convert_from(header, 'UTF8') like '%%work_began%%'")
    (began,) = pair.entries("work_began")
    return (one, other) if began["process"] == one.pid else (other, one)


async def killed_before_marking(pair: Pair, process: Process) -> Envelope:
    """Kill it when it has kept an answer and not yet written that it was given; the question."""
    while True:
        question = await process.query()
        asking = asyncio.create_task(process.tell(question))
        await pair.until(KEPT, id=question["id"])
        os.kill(process.pid, signal.SIGSTOP)
        if not pair.value(MARKED, id=question["id"]):
            break
        os.kill(process.pid, signal.SIGCONT)
        await asking
    os.kill(process.pid, signal.SIGKILL)
    process.serving.process.wait(10)
    await asyncio.gather(asking, return_exceptions=True)
    return question


def unanswered(orders: Sequence[Envelope], told: Sequence[Exchange | BaseException]) -> list[Envelope]:
    return [order for order, answer in zip(orders, told, strict=True) if isinstance(answer, Failed)]


async def acknowledged_is_kept(alive: Process, told: Sequence[Exchange | BaseException]) -> None:
    """Whatever was answered stands in the ledger, run as the answer said."""
    for answer in told:
        if isinstance(answer, Exchange):
            assert answer.reply["kind"] == "result"
            records = await scenes.records_of(alive.probe, answer.sent["id"])
            assert [record["response_id"] for record in records] == [answer.reply["id"]]
        else:
            assert isinstance(answer, Failed)


async def given_when_the_lease_is_over(alive: Process, letters: Sequence[Envelope]) -> None:
    """Sent again, each is answered or is a repeat; the kept answer of a repeat is given when its process is gone."""
    first = [await alive.tell(letter) for letter in letters]
    refused = [exchange for exchange in first if exchange.reply["kind"] != "result"]
    assert {exchange.reason for exchange in refused} == {"replay_rejected"}
    assert refused[0].sent == letters[0]
    await asyncio.sleep(GONE_AFTER)
    for exchange in refused:
        given, again = await alive.tell(exchange.sent), await alive.tell(exchange.sent)
        assert given.reply["kind"] == "result"
        assert (
            original(exchange)
            == original(again)
            == {
                "response_id": given.reply["id"],
                "invocation_id": given.body.get("invocation_id"),
            }
        )
        assert await alive.probe.verifies(given.reply)
        assert again.reason == "replay_rejected"


def original(refused: Exchange) -> object:
    return refused.body["original"]


async def work_is_done_once(pair: Pair, dead: Process, alive: Process) -> None:
    await pair.until("select count(*) = 1 from jobs_job where state = 'done' and key = 'long'", within=40)
    assert [each["process"] for each in pair.entries("work_began")] == [dead.pid, alive.pid]
    assert [each["process"] for each in pair.entries("worked")] == [alive.pid]


async def act_is_closed(pair: Pair) -> None:
    await pair.until("select count(*) = 0 from govern_act", within=SWEPT_WITHIN)
    assert [each["object"] for each in pair.entries("started")] == ["PATIENCE_WAIT"]
    assert [each["object"] for each in pair.entries("interrupted")] == ["PATIENCE_WAIT"]
