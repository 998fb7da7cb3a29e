"""Durable work: at least once, one worker at a time, nothing lost with a worker and nothing written by a late one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

from deedbox import Facet, Job, Node, Plugin, Refusal, Unit, hookimpl
from deedbox.jobs import Again, Claimed, LeaseLost, claim_key, current_lease, enqueue, perform, prune, working
from deedbox.jobs import table as jobs_table
from deedbox.jobs.worker import default_delay, jittered
from deedbox.testing import FrozenClock
from tests.kernel.bare_node import a_bare_node

POLL = 0.05
Run = Callable[[Node, Mapping[str, Any]], Awaitable[None]]


class Errands(Plugin):
    """Runs whatever the test puts here, by kind."""

    facet = Facet(name="errands", summary="Work for tests.")
    runs: ClassVar[dict[str, Run]] = {}
    ways: ClassVar[dict[str, Any]] = {}

    @hookimpl
    def deedbox_jobs(self) -> list[Job]:
        return [Job(kind, run, **self.ways.get(kind, {})) for kind, run in self.runs.items()]


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def start(tmp_path: Path, database_url: str, clock: FrozenClock) -> AsyncIterator[Callable[..., Awaitable[Node]]]:
    """Makes the node with these kinds of work; ``ways`` are further arguments of their Job."""
    async with AsyncExitStack() as stack:

        async def made(ways: dict[str, Any] | None = None, **runs: Run) -> Node:
            Errands.runs, Errands.ways = runs, ways or {}
            return await stack.enter_async_context(a_bare_node(tmp_path, Errands, database=database_url, clock=clock))

        yield made


async def make(node: Node, kind: str, key: str, run_at: int | None = None, **payload: Any) -> bool:
    def unit_of(unit: Unit) -> bool:
        return enqueue(unit, kind, key, payload, unit.now if run_at is None else run_at)

    made: bool = await node.database.run(unit_of)
    return made


async def take(node: Node, kind: str, key: str) -> Claimed | None:
    found: Claimed | None = await node.database.run(claim_key, kind, key, node.jobs[kind].lease, node.ids.new("lease"))
    return found


async def row(node: Node, key: str) -> Any:
    return await node.database.read(lambda reader: reader.one("select * from jobs_job where key = :key", key=key))


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await true():  # noqa: ASYNC110  # it watches a table
            await asyncio.sleep(0.01)


async def ended(node: Node, key: str) -> None:
    async def over() -> bool:
        return bool((await row(node, key)).state != "waiting")

    await until(over)


class Diary:
    """A run that notes what it was given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def __call__(self, node: Node, payload: Mapping[str, Any]) -> None:
        self.seen.append(payload.get("n"))


async def test_a_job_runs_once_with_its_payload_and_is_done(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(errand=(diary := Diary()))
    async with working(node, poll=POLL):
        assert await make(node, "errand", "a", n=1)
        await ended(node, "a")
    assert diary.seen == [1]
    found = await row(node, "a")
    assert (found.state, found.attempts, found.lease_token, found.last_error) == ("done", 1, None, None)


async def test_the_same_key_twice_is_one_job(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(errand=(diary := Diary()), other=(other := Diary()))
    assert [await make(node, "errand", "a", n=n) for n in (1, 2)] == [True, False]
    assert await make(node, "other", "a", n=3)
    async with working(node, poll=POLL):
        await until(lambda: asyncio.sleep(0, len(diary.seen) + len(other.seen) == 2))
    assert (diary.seen, other.seen) == ([1], [3])


async def test_work_of_a_unit_that_fails_was_never_made(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(errand=Diary())

    def unit_of(unit: Unit) -> None:
        enqueue(unit, "errand", "a", {}, unit.now)
        raise Refusal("changed_my_mind")

    with pytest.raises(Refusal, match="changed_my_mind"):
        await node.database.run(unit_of)
    assert await row(node, "a") is None


async def test_a_bell_wakes_the_worker_long_before_its_poll(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(errand=(diary := Diary()))
    async with working(node, poll=60):
        await asyncio.sleep(0.05)
        for n in range(3):
            await make(node, "errand", str(n), n=n)
            async with asyncio.timeout(5):
                await until(lambda n=n: asyncio.sleep(0, n in diary.seen))  # type: ignore[misc]


async def test_a_job_waits_for_its_hour(start: Callable[..., Awaitable[Node]], clock: FrozenClock) -> None:
    node = await start(errand=(diary := Diary()))
    await make(node, "errand", "a", run_at=clock.now() + 60_000)
    async with working(node, poll=POLL):
        await asyncio.sleep(4 * POLL)
        assert diary.seen == []
        clock.advance(60)
        await ended(node, "a")


@pytest.mark.case("fed:G3", "fed:E7")
async def test_a_dead_workers_job_is_taken_over_when_its_lease_ends(
    start: Callable[..., Awaitable[Node]], clock: FrozenClock
) -> None:
    node = await start(errand=(diary := Diary()))
    await make(node, "errand", "a", n=1)
    dead = await take(node, "errand", "a")  # and never heard of again
    assert dead is not None
    assert await take(node, "errand", "a") is None
    async with working(node, poll=POLL):
        clock.advance(59)
        await asyncio.sleep(4 * POLL)
        assert diary.seen == []
        clock.advance(2)
        await ended(node, "a")
    assert diary.seen == [1]
    assert (await row(node, "a")).attempts == 2


@pytest.mark.case("fed:G4")
async def test_who_lost_the_lease_writes_neither_the_end_nor_the_result(
    start: Callable[..., Awaitable[Node]], clock: FrozenClock
) -> None:
    fenced: list[str] = []
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow(node: Node, payload: Mapping[str, Any]) -> None:
        started.set()
        await go_on.wait()
        try:
            await node.database.run(current_lease().require)
        except LeaseLost as lost:
            fenced.append(lost.code)
            raise

    node = await start(errand=slow)
    await make(node, "errand", "a")
    first = await take(node, "errand", "a")
    assert first is not None
    late = asyncio.create_task(perform(node, first))
    await started.wait()
    clock.advance(61)
    second = await take(node, "errand", "a")
    assert second is not None
    go_on.set()
    await late
    assert fenced == ["lease_lost"]
    found = await row(node, "a")
    assert (found.state, found.lease_token, found.attempts) == ("waiting", second.token, 2)
    for write in (jobs_table.finish, jobs_table.renew, jobs_table.put_back, jobs_table.fail):
        extra: dict[Any, tuple[Any, ...]] = {jobs_table.finish: (), jobs_table.put_back: (0, 0)}
        assert not await node.database.run(write, first, *extra.get(write, (1,)))
    assert await node.database.run(jobs_table.finish, second)


@pytest.mark.case("fed:G4")
async def test_a_job_longer_than_its_lease_keeps_it(start: Callable[..., Awaitable[Node]], clock: FrozenClock) -> None:
    renewed: list[int] = []

    async def slow(node: Node, payload: Mapping[str, Any]) -> None:
        for _ in range(20):
            await asyncio.sleep(0.02)
            clock.advance(0.05)
            renewed.append((await row(node, "a")).lease_until)

    node = await start({"errand": {"lease": 300}}, errand=slow)
    await make(node, "errand", "a")
    async with working(node, poll=POLL):
        await ended(node, "a")
    assert len(set(renewed)) >= 3, "the lease was not renewed while the job ran"
    assert (await row(node, "a")).attempts == 1


async def test_a_worker_that_finds_its_lease_gone_stops_the_job(
    start: Callable[..., Awaitable[Node]], clock: FrozenClock
) -> None:
    stopped = asyncio.Event()

    async def endless(node: Node, payload: Mapping[str, Any]) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    node = await start({"errand": {"lease": 300}}, errand=endless)
    await make(node, "errand", "a")
    first = await take(node, "errand", "a")
    assert first is not None
    running = asyncio.create_task(perform(node, first))
    clock.advance(1)
    assert await take(node, "errand", "a") is not None
    async with asyncio.timeout(5):
        await stopped.wait()
        await running


async def test_two_workers_on_one_table_run_each_job_once(start: Callable[..., Awaitable[Node]]) -> None:
    seen: list[int] = []

    async def run(node: Node, payload: Mapping[str, Any]) -> None:
        await asyncio.sleep(0.001)
        seen.append(payload["n"])

    node = await start(errand=run)
    async with working(node, poll=POLL), working(node, poll=POLL):
        await asyncio.gather(*(make(node, "errand", str(n), n=n) for n in range(60)))
        await until(lambda: asyncio.sleep(0, len(seen) >= 60))
        await asyncio.sleep(2 * POLL)
    assert sorted(seen) == list(range(60))


async def test_a_slow_kind_does_not_hold_up_another(start: Callable[..., Awaitable[Node]]) -> None:
    async def never(node: Node, payload: Mapping[str, Any]) -> None:
        await asyncio.sleep(3600)

    node = await start(slow=never, errand=(diary := Diary()))
    for n in range(20):
        await make(node, "slow", str(n))
    worker = working(node, poll=POLL)
    await worker.__aenter__()
    await make(node, "errand", "quick", n=1)
    await ended(node, "quick")
    assert diary.seen == [1]
    cancel_slow_ones()
    await worker.__aexit__(None, None, None)
    count = await node.database.read(
        lambda r: r.one("select count(*) as n from jobs_job where lease_token is not null")
    )
    assert count is not None
    assert count.n == 0, "a stopped worker gives its jobs back"


def cancel_slow_ones() -> None:
    """They never end by themselves, so there is nothing to wait for."""
    for task in asyncio.all_tasks():
        if task.get_name() == "job slow":
            task.cancel()


async def test_a_failure_is_tried_again_later_and_later_with_jitter(
    start: Callable[..., Awaitable[Node]], clock: FrozenClock
) -> None:
    async def broken(node: Node, payload: Mapping[str, Any]) -> None:
        raise Refusal("not_today", detail="the weather")

    node = await start({"errand": {"delay": lambda n: 1000 * 10**n}}, errand=broken)
    await make(node, "errand", "a")
    waits = []
    for _ in range(3):
        claimed = await take(node, "errand", "a")
        assert claimed is not None
        await perform(node, claimed)
        found = await row(node, "a")
        assert (found.state, found.last_error) == ("waiting", "not_today: the weather")
        waits.append(found.run_at - clock.now())
        clock.advance(waits[-1] / 1000)
    assert all(500 * 10**n < wait <= 1000 * 10**n for n, wait in enumerate(waits, 1))


async def test_a_bell_that_rings_while_it_stops_does_not_hold_it(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(errand=Diary())
    async with asyncio.timeout(30):
        for number in range(30):
            async with working(node):
                await make(node, "errand", f"{number}")


async def test_a_refusal_that_says_when_is_heeded(start: Callable[..., Awaitable[Node]], clock: FrozenClock) -> None:
    async def busy(node: Node, payload: Mapping[str, Any]) -> None:
        raise Refusal("busy", 503, retry_after=900)

    node = await start(errand=busy)
    await make(node, "errand", "a")
    claimed = await take(node, "errand", "a")
    assert claimed is not None
    await perform(node, claimed)
    assert (await row(node, "a")).run_at == clock.now() + 900_000


async def test_after_the_last_try_it_is_a_visible_failure_and_an_entry(
    start: Callable[..., Awaitable[Node]], clock: FrozenClock
) -> None:
    async def broken(node: Node, payload: Mapping[str, Any]) -> None:
        raise ValueError("sh.1234567890.secret.looking.text")

    node = await start({"errand": {"delay": lambda n: None if n >= 2 else 10}}, errand=broken)
    await make(node, "errand", "a")

    async def tried() -> bool:
        found = await row(node, "a")
        return (found.attempts, found.lease_token) == (1, None)

    async with working(node, poll=POLL):
        await until(tried)
        clock.advance(1)
        await ended(node, "a")
    found = await row(node, "a")
    assert (found.state, found.attempts, found.last_error, found.lease_token) == ("failed", 2, "ValueError", None)
    entries = await node.database.read(lambda r: r.all("select payload from ledger_payload"))
    said = [orjson.loads(bytes(each.payload)) for each in entries]
    assert [(each["object"], each["key"], each["code"], each["attempts"]) for each in said if "attempts" in each] == [
        ("errand", "a", "ValueError", 2)
    ]


@pytest.mark.case("fed:G3")
async def test_a_job_that_takes_every_worker_with_it_is_given_up(
    start: Callable[..., Awaitable[Node]], clock: FrozenClock
) -> None:
    node = await start({"errand": {"delay": lambda n: None if n >= 3 else 10}}, errand=(diary := Diary()))
    await make(node, "errand", "a", n=1)
    for _ in range(3):
        assert await take(node, "errand", "a") is not None  # three workers die holding it
        clock.advance(61)
    async with working(node, poll=POLL):
        await ended(node, "a")
    assert diary.seen == []
    assert (await row(node, "a")).last_error.startswith("job_abandoned")


async def test_not_done_is_not_failed(start: Callable[..., Awaitable[Node]], clock: FrozenClock) -> None:
    async def patient(node: Node, payload: Mapping[str, Any]) -> None:
        raise Again(clock.now() + 5_000)

    node = await start(errand=patient)
    await make(node, "errand", "a")
    for _ in range(12):
        claimed = await take(node, "errand", "a")
        assert claimed is not None
        await perform(node, claimed)
        found = await row(node, "a")
        assert (found.state, found.attempts, found.run_at) == ("waiting", 0, clock.now() + 5_000)


async def test_a_schedule_runs_every_so_often_in_one_of_the_workers(
    start: Callable[..., Awaitable[Node]], clock: FrozenClock
) -> None:
    node = await start({"errand": {"every": 60_000}}, errand=(diary := Diary()))
    async with working(node, poll=POLL), working(node, poll=POLL):
        for times in range(1, 4):
            await until(lambda times=times: asyncio.sleep(0, len(diary.seen) == times))  # type: ignore[misc]
            await asyncio.sleep(3 * POLL)
            assert len(diary.seen) == times
            clock.advance(60)
    rows = await node.database.read(lambda r: r.all("select * from jobs_job"))
    assert [(each.kind, each.key, each.state) for each in rows] == [("errand", jobs_table.SCHEDULE, "waiting")]


async def test_a_schedule_survives_its_failures(start: Callable[..., Awaitable[Node]], clock: FrozenClock) -> None:
    async def broken(node: Node, payload: Mapping[str, Any]) -> None:
        raise ValueError

    node = await start({"errand": {"every": 60_000, "delay": lambda n: None}}, errand=broken)
    async with working(node, poll=POLL):

        async def put_back() -> bool:
            found = await row(node, jobs_table.SCHEDULE)
            return bool(found.last_error)

        await until(put_back)
    found = await row(node, jobs_table.SCHEDULE)
    assert (found.state, found.run_at, found.attempts) == ("waiting", clock.now() + 60_000, 0)


async def test_work_of_an_absent_facet_waits(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(errand=Diary())
    await make(node, "of_another_facet", "a")
    async with working(node, poll=POLL):
        await asyncio.sleep(4 * POLL)
    assert (await row(node, "a")).state == "waiting"


async def test_ended_jobs_are_pruned_in_time(start: Callable[..., Awaitable[Node]], clock: FrozenClock) -> None:
    node = await start(errand=Diary())
    for key in ("done", "failed", "waiting"):
        await make(node, "errand", key)
    done, failed = await take(node, "errand", "done"), await take(node, "errand", "failed")
    assert done is not None
    assert failed is not None
    await node.database.run(jobs_table.finish, done)
    await node.database.run(jobs_table.fail, failed, "why")
    clock.advance(2 * 86_400)
    assert await node.database.run(prune) == 1
    clock.advance(30 * 86_400)
    assert await node.database.run(prune) == 1
    assert (await row(node, "waiting")).state == "waiting"


def test_delays_grow_and_end_and_jitter_stays_within_half() -> None:
    delays = [default_delay(n) for n in range(1, 9)]
    assert delays == [2000, 4000, 8000, 16000, 32000, 64000, 128000, None]
    assert jittered(1000, b"\0\0") == 1000
    assert 500 <= jittered(1000, b"\xff\xff") < 502


@pytest.mark.case("fed:G1", "fed:G5")
async def test_what_is_acknowledged_is_on_disk_and_writers_never_upgrade(
    start: Callable[..., Awaitable[Node]],
) -> None:
    node = await start(errand=Diary())

    def look(unit: Unit) -> tuple[str, Any]:
        if unit.engine == "postgresql":
            return unit.engine, unit.one("select current_setting('synchronous_commit') as kept").kept  # type: ignore[union-attr]
        return unit.engine, unit.one("pragma synchronous").synchronous  # type: ignore[union-attr]

    engine, kept = await node.database.run(look)
    assert kept == {"sqlite": 2, "postgresql": "on"}[engine]
    if engine == "sqlite":

        def locked(unit: Unit) -> str:
            path = node.kernel.settings.node.database.removeprefix("sqlite:///")
            other = sqlite3.connect(path, timeout=0, isolation_level=None)
            try:
                other.execute("begin immediate")
            except sqlite3.OperationalError as error:
                return str(error)
            finally:
                other.close()
            return "both may write"

        # a unit that has only read holds the write lock already: there is no upgrade that could fail
        assert await node.database.run(locked) == "database is locked"
