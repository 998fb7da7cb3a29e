"""Two processes of one node on one database, written to at once: nothing lost, nothing twice, one unforked chain."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from deedbox.jobs.worker import POLL
from deedbox_conformance.clauses import scenes
from deedbox_conformance.probe import Exchange
from deedbox_conformance.wire import Envelope
from tests.suites.postgres.pair import NODE, Pair, Process, another, deedbox

pytestmark = pytest.mark.asyncio(loop_scope="module")
SINGLE, DOUBLE, AT_ONCE, ROUNDS = 120, 40, 16, 8
Told = list[Exchange]
SEALED = (
    "select (select coalesce(max(id), 0) from ledger_event) = (select coalesce(max(last), 0) from ledger_batch)"
    " and (select max(seq) from ledger_entry) = (select max(size) from ledger_checkpoint)"
)
"""Every event is in a batch, and the newest entry under a signed head."""


async def crowd(works: list[Callable[[], Awaitable[Told]]]) -> list[Told]:
    """What all of them brought, a few at a time, in order."""
    seats = asyncio.Semaphore(AT_ONCE)

    async def seated(work: Callable[[], Awaitable[Told]]) -> Told:
        async with seats:
            return await work()

    return await asyncio.gather(*map(seated, works))


async def letters(two: Pair, count: int, token: str = "") -> list[Envelope]:
    """Questions, and with a token every second one an order."""
    author = two.processes[0]
    return [await (author.invoke(token) if token and number % 2 else author.query()) for number in range(count)]


def telling(processes: list[Process], envelope: Envelope) -> Callable[[], Awaitable[Told]]:
    """The same envelope to each of these, at the same time."""

    async def work() -> Told:
        return await asyncio.gather(*(process.tell(envelope) for process in processes))

    return work


def receipt_of(exchange: Exchange) -> dict[str, Any]:
    receipt = exchange.reply["receipt"]
    assert isinstance(receipt, dict)
    return receipt


@pytest.mark.case("fed:C3", "fed:D1", "fed:D2")
async def test_both_at_once_lose_nothing_and_keep_one_chain(two: Pair) -> None:
    one, other = two.processes
    token = await one.mint(SINGLE + DOUBLE)
    single, double = await letters(two, SINGLE, token.text), await letters(two, DOUBLE, token.text)
    works = [telling([two.processes[number % 2]], envelope) for number, envelope in enumerate(single)]
    works += [telling([one, other], envelope) for envelope in double]
    over = asyncio.Event()
    reading = asyncio.create_task(read_until(over, two))
    told = await crowd(works)
    over.set()
    await reading
    answers = [exchange for (exchange,) in told[:SINGLE]]
    assert {exchange.reply["kind"] for exchange in answers} == {"result"}
    answers += [accepted_once(pair) for pair in told[SINGLE:]]
    runs = [exchange for exchange in answers if exchange.sent["kind"] == "invoke"]
    seqs = [receipt_of(exchange)["seq"] for exchange in runs]
    assert len(set(seqs)) == len(runs) == (SINGLE + DOUBLE) // 2
    assert len({exchange.body["invocation_id"] for exchange in runs}) == len(runs)
    assert two.used(token) == len(runs)
    entries = {row["seq"]: row["leaf"].hex() for row in two.rows("select seq, leaf from ledger_entry")}
    events = {f"event:{row['id']}": row["leaf"].hex() for row in two.rows("select id, leaf from ledger_event")}
    for exchange in answers:
        receipt = receipt_of(exchange)
        kept = entries[receipt["seq"]] if "seq" in receipt else events[receipt["id"]]
        assert kept == receipt.get("leaf", receipt.get("hash"))
        views = [await scenes.records_of(process.probe, exchange.sent["id"]) for process in two.processes]
        assert views[0] == views[1]
        assert exchange.reply["id"] in [record["response_id"] for record in views[0]]
    assert two.value("select deadlocks from pg_stat_database where datname = current_database()") == 0


async def read_until(over: asyncio.Event, two: Pair) -> None:
    """Looks and whole verifications beside the writing."""
    while not over.is_set():
        for process in two.processes:
            await process.read("/oip/ledger?limit=100")
            await process.read("/oip/conversation")
            await process.read("/ready")
        await asyncio.to_thread(two.verified)


def accepted_once(told: Told) -> Exchange:
    """The answer of the process that took it; the other one refused it as a repeat of that."""
    kinds = sorted(str(exchange.reply["kind"]) for exchange in told)
    assert kinds == ["error", "result"]
    accepted, refused = sorted(told, key=lambda exchange: exchange.reply["kind"] == "error")
    assert refused.reason == "replay_rejected"
    original = refused.body["original"]
    assert isinstance(original, dict)
    assert original["response_id"] == accepted.reply["id"]
    assert original.get("invocation_id") == accepted.body.get("invocation_id")
    return accepted


async def test_an_export_and_a_proof_hold_without_the_node(two: Pair, tmp_path: Path) -> None:
    one, other = two.processes
    token = await one.mint(8)
    runs = [await process.tell(await process.invoke(token.text)) for process in (one, other) * 4]
    for process in (one, other) * 4:
        await process.tell(await process.query())
    export, bare = tmp_path / "ledger.jsonl", tmp_path / "bare.jsonl"
    await two.until(SEALED)
    for file, options in ((export, ()), (bare, ("--without-payloads",))):
        await asyncio.to_thread(deedbox, "ledger", "export", str(file), "--config", two.config, *options)
    key = json.loads(export.read_text().partition("\n")[0])["keys"][0]
    head = two.verified()
    for file in (export, bare):
        kept = f"{head['size']}:{head['root']}"
        told = json.loads(deedbox("verify", str(file), "--origin", NODE, "--key", key, "--head", kept, "--json"))
        assert (told["ok"], told["state"], told["size"]) == (True, "valid to a witnessed size", head["size"])
    receipt = receipt_of(runs[-1])
    proof = tmp_path / "run.proof"
    proof.write_text(deedbox("ledger", "prove", f"entry:{receipt['seq']}", "--config", two.config))
    checked = json.loads(deedbox("ledger", "check", str(proof), "--leaf", receipt["leaf"], "--key", key, "--json"))
    assert (checked["ok"], checked["origin"]) == (True, NODE)


async def test_a_backend_that_ends_under_load_costs_nobody_anything(two: Pair) -> None:
    one, _ = two.processes
    token = await one.mint(ROUNDS * SINGLE)
    before = two.value("select count(*) from inbox_exchange")
    answers: list[Exchange] = []
    for _round in range(ROUNDS):
        envelopes = await letters(two, SINGLE, token.text)
        works = [telling([two.processes[number % 2]], envelope) for number, envelope in enumerate(envelopes)]
        told, ended = await asyncio.gather(crowd(works), ending_backends(two))
        assert ended >= 2
        answers += [exchange for (exchange,) in told]
    assert Counter(exchange.reply["kind"] for exchange in answers) == {"result": ROUNDS * SINGLE}
    runs = [exchange for exchange in answers if exchange.sent["kind"] == "invoke"]
    assert len({receipt_of(exchange)["seq"] for exchange in runs}) == len(runs)
    assert two.used(token) == len(runs)
    assert two.value("select count(*) from inbox_exchange") == before + ROUNDS * SINGLE


async def test_work_wakes_the_process_that_can_do_it(two: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one hands out another takes up at once, and at the latest when it looks by itself."""
    monkeypatch.setenv("DEEDBOX_FACETS__PATIENCE__WORKS", "false")
    foreman = await another(two, 2)
    waits = [await handed_over(two, foreman, f"heard {number}") for number in range(5)]
    assert statistics.median(waits) < POLL / 4
    await asyncio.to_thread(end_every_backend, two)
    assert await handed_over(two, foreman, "not heard") < 2 * POLL
    workers = {each["process"] for each in two.entries("worked")}
    assert workers <= {process.pid for process in two.processes if process is not foreman}


async def handed_over(two: Pair, foreman: Process, name: str) -> float:
    """Seconds from the answer that it is queued to its end."""
    await foreman.as_owner("PATIENCE_QUEUE", name=name)
    queued = time.monotonic()
    done = "select count(*) = 1 from jobs_job where key = %(key)s and state = 'done'"
    await two.until(done, key=name)
    return time.monotonic() - queued


async def ending_backends(two: Pair) -> int:
    """A few times in the middle of it."""
    ended = 0
    for _ in range(3):
        await asyncio.sleep(0.15)
        ended += await asyncio.to_thread(end_every_backend, two)
    return ended


def end_every_backend(two: Pair) -> int:
    """As a fail-over would: whatever any process of the node was doing at the database; how many were ended."""
    ended: int = two.value(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    return ended
