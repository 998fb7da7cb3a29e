"""Running jobs: a few at once of each kind, each under a lease that is renewed while it works (kernel-notes §7.1).

A job may run more than once, never less: it is idempotent by its key, or writes its result only while ``current_lease``
holds. Between claiming and ending no transaction is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from deedbox.jobs import table
from deedbox.jobs.table import SCHEDULE, Claimed, LeaseLost
from deedbox.refusals import Fault, Refusal

if TYPE_CHECKING:
    from deedbox.hookspecs import Job
    from deedbox.node import Node
    from deedbox.storage.unit import Unit

POLL = 2.0
"""Seconds after which a worker looks even if nobody rang: later hours and lost connections ring no bell."""
SLOTS = 8
"""Jobs of one kind a worker runs at once, so that a slow kind never holds up another."""
GRACE = 5.0
"""Seconds running jobs are given when the node stops; what is not done by then is put back."""
PRUNE_EVERY = 60.0
FIRST_DELAY = 2_000
TRIES = 8
ERROR_KEPT = 300

_lease: ContextVar[Claimed] = ContextVar("lease")


class Again(Exception):
    """Raised by a job that is not done but did not fail either: run it again at ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def current_lease() -> Claimed:
    """The job under whose lease this code runs."""
    return _lease.get()


def default_delay(attempts: int) -> int | None:
    """Two seconds, doubled each time; nothing after eight tries."""
    return None if attempts >= TRIES else FIRST_DELAY << (attempts - 1)


@asynccontextmanager
async def working(node: Node, *, poll: float = POLL) -> AsyncIterator[None]:
    """Run what is due while the block lasts; any number of workers, in any process, share one table."""
    worker = Worker(node, poll)
    bell = worker.bell(asyncio.get_running_loop())
    await node.database.run(table.hang, bell)
    await node.database.run(table.schedule, [job.kind for job in node.jobs.values() if job.every])
    task = asyncio.create_task(worker.work(), name="jobs")
    try:
        async with node.database.hearing(bell):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await worker.leave()
        await node.database.run(table.unhang, bell)


class Worker:
    """Claims, runs, and looks again when a bell rings, a job ends or the poll is over."""

    def __init__(self, node: Node, poll: float) -> None:
        self._node = node
        self._poll = poll
        self._rung = asyncio.Event()
        self._running: dict[str, set[asyncio.Task[None]]] = {kind: set() for kind in node.jobs}
        self._prune_at = 0.0

    def bell(self, loop: asyncio.AbstractEventLoop) -> _Bell:
        return _Bell(loop, self._rung)

    async def work(self) -> None:
        """Until cancelled; a turn that fails is logged, and the next one comes all the same."""
        while True:
            self._rung.clear()
            try:
                await self._turn()
            except Exception:
                self._node.log.exception("jobs_failed")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll):  # wait_for may swallow a cancellation (Python 3.11)
                    await self._rung.wait()

    async def leave(self) -> None:
        """Let what runs end, for a while; then put it back."""
        tasks = [task for running in self._running.values() for task in running]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _turn(self) -> None:
        free = {kind: SLOTS - len(running) for kind, running in self._running.items() if len(running) < SLOTS}
        for claimed in await self._node.database.run(_claim, self._node, free):
            task = asyncio.create_task(perform(self._node, claimed), name=f"job {claimed.kind}")
            self._running[claimed.kind].add(task)
            task.add_done_callback(self._running[claimed.kind].discard)
            task.add_done_callback(lambda _: self._rung.set())
        now = asyncio.get_running_loop().time()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_EVERY
            await self._node.database.run(table.prune)


class _Bell:
    """Wakes a worker from the writing thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rung: asyncio.Event) -> None:
        self._loop = loop
        self._rung = rung

    def __call__(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)


def _claim(unit: Unit, node: Node, free: dict[str, int]) -> list[Claimed]:
    token = node.ids.new("lease", unit.now)
    kinds = ((node.jobs[kind], most) for kind, most in free.items())
    return [found for job, most in kinds for found in table.claim(unit, job.kind, job.lease, token, most)]


# --- one job -----------------------------------------------------------------------------------------------------


async def perform(node: Node, claimed: Claimed) -> None:
    """Run a claimed job and write how it ended; whoever lost the lease writes nothing."""
    job = node.jobs[claimed.kind]
    attempt = asyncio.create_task(_attempt(node, job, claimed))
    keeper = asyncio.create_task(_keep(node, job, claimed))
    try:
        await asyncio.wait((attempt, keeper), return_when=asyncio.FIRST_COMPLETED)
        held = attempt.done() and await node.database.run(_settle, node, job, claimed, attempt.result())
        if not held:
            node.log.warning("job_lease_lost", job=claimed.kind, key=claimed.key)
    except asyncio.CancelledError:
        await _stopped(attempt)
        await node.database.run(_put_back, claimed)
        raise
    finally:
        await _stopped(attempt, keeper)


async def _stopped(*tasks: asyncio.Task[None] | asyncio.Task[Exception | None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _attempt(node: Node, job: Job, claimed: Claimed) -> Exception | None:
    """What the job raised, if it did."""
    _lease.set(claimed)
    if claimed.attempts > 1 and (job.delay or default_delay)(claimed.attempts - 1) is None:
        return Refusal("job_abandoned", 500, "every try ended together with its worker", fault=Fault.OURS)
    try:
        await job.run(node, claimed.payload)
    except Exception as error:
        return error
    return None


async def _keep(node: Node, job: Job, claimed: Claimed) -> None:
    """Renew the lease at a third of its length; returns when it is lost."""
    while True:
        await asyncio.sleep(job.lease / 3000)
        try:
            if not await node.database.run(table.renew, claimed, job.lease):
                return
        except Exception:
            node.log.exception("job_lease_not_renewed", job=claimed.kind, key=claimed.key)


def _put_back(unit: Unit, claimed: Claimed) -> bool:
    return table.put_back(unit, claimed, unit.now, claimed.attempts - 1)


def _settle(unit: Unit, node: Node, job: Job, claimed: Claimed, error: Exception | None) -> bool:
    """Write how a try ended; false if the lease was lost, and then nothing is written."""
    again = unit.now + job.every if job.every and claimed.key == SCHEDULE else None
    if error is None:
        return table.finish(unit, claimed) if again is None else table.put_back(unit, claimed, again, 0)
    if isinstance(error, Again):
        return table.put_back(unit, claimed, error.at, 0)
    if isinstance(error, LeaseLost):
        return False
    said = described(error)
    node.log.warning("job_failed", job=claimed.kind, key=claimed.key, attempts=claimed.attempts, exc_info=error)
    wait = (job.delay or default_delay)(claimed.attempts)
    if wait is not None:
        at = unit.now + max(jittered(wait, node.ids.secret(2)), 1_000 * (getattr(error, "retry_after", None) or 0))
        return table.put_back(unit, claimed, at, claimed.attempts, said)
    held = table.fail(unit, claimed, said) if again is None else table.put_back(unit, claimed, again, 0, said)
    if held:
        _enter(unit, node, claimed, error)
    return held


def jittered(wait: int, random: bytes) -> int:
    """Between half the wait and all of it, so that those who failed together do not come back together."""
    return wait - wait * int.from_bytes(random, "big") // (2 << 8 * len(random))


def described(error: Exception) -> str:
    """A refusal in its own words, which hold no secret; of anything else the name alone."""
    return (str(error) if isinstance(error, Refusal) else type(error).__name__)[:ERROR_KEPT]


def _enter(unit: Unit, node: Node, claimed: Claimed, error: Exception) -> None:
    said = {
        "surface": "jobs",
        "object": claimed.kind,
        "key": claimed.key,
        "actor": "node",
        "ended": "failed",
        "code": error.code if isinstance(error, Refusal) else type(error).__name__,
        "attempts": claimed.attempts,
    }
    node.ledger.entry(unit, "job_failed", "node", said, subject=claimed.kind)
