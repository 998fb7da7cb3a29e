"""The job table: what is to be done, when, and which worker holds it until when (decision 18, kernel-notes §7.1).

A lease is a column and not an open transaction. Its token is the fence: whoever writes how a job ended, or what it led
to, must still hold the token (fed:G3, fed:G4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlmodel import Field

from deedbox.refusals import Fault, Refusal
from deedbox.storage.connection import Row
from deedbox.storage.tables import Table
from deedbox.storage.unit import Unit
from deedbox.storage.wake import wake_others

WAITING, DONE, FAILED = "waiting", "done", "failed"
SCHEDULE = "@every"
"""The key of the one row behind a kind that runs every so often."""
DONE_KEPT = 86_400_000
FAILED_KEPT = 30 * 86_400_000


class Job(Table, table=True):
    """One piece of work. Of an ended one ``run_at`` is when it ended; the lease is empty when nobody has it."""

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    key: str
    payload: str
    run_at: int
    attempts: int
    lease_until: int | None = None
    lease_token: str | None = None
    state: str
    last_error: str | None = None


class LeaseLost(Refusal):
    """Somebody else has the job now; what was found out must not be written."""

    def __init__(self) -> None:
        super().__init__("lease_lost", 409, "another worker has taken this job over", fault=Fault.OURS)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job in a worker's hands; ``attempts`` counts this one."""

    id: int
    kind: str
    key: str
    payload: Mapping[str, Any]
    attempts: int
    token: str

    def require(self, unit: Unit) -> None:
        """Refuse ``lease_lost`` unless the token still stands; call it in the unit that writes a job's result."""
        held = unit.one("select 1 as one from jobs_job where id = :id and lease_token = :token", **self._fence)
        if held is None:
            raise LeaseLost

    @property
    def _fence(self) -> dict[str, Any]:
        return {"id": self.id, "token": self.token}


# --- deciding ----------------------------------------------------------------------------------------------------


def enqueue(unit: Unit, kind: str, key: str, payload: Mapping[str, Any], run_at: int) -> bool:
    """Have a job run once the unit is committed and ``run_at`` has come; false if this kind has the key already.

    A key stays taken until its job, when done, is pruned after a day.
    """
    made = unit.change(
        "insert into jobs_job (kind, key, payload, run_at, attempts, state)"
        " values (:kind, :key, :payload, :run_at, 0, 'waiting') on conflict (kind, key) do nothing",
        kind=kind,
        key=key,
        payload=orjson.dumps(payload).decode(),
        run_at=run_at,
    )
    if made and run_at <= unit.now:
        ring()
        wake_others(unit)
    return made == 1


def schedule(unit: Unit, kinds: Iterable[str]) -> None:
    """See to it that kinds which run every so often have their row."""
    for kind in kinds:
        enqueue(unit, kind, SCHEDULE, {}, unit.now)


# --- waking ------------------------------------------------------------------------------------------------------

_here = threading.local()
"""The bells of the thread that units run on. Nodes of one process may share it: a bell too many is a look too many."""


def hang(unit: Unit, bell: Callable[[], object]) -> None:
    """Have a bell rung whenever a unit of this database makes work that is due."""
    _here.bells = (*getattr(_here, "bells", ()), bell)


def unhang(unit: Unit, bell: Callable[[], object]) -> None:
    _here.bells = tuple(each for each in _here.bells if each != bell)


def ring() -> None:
    """Wake the workers; what they claim with waits behind the group that is still open."""
    for bell in getattr(_here, "bells", ()):
        bell()


# --- holding -----------------------------------------------------------------------------------------------------

_FREE = "state = 'waiting' and (lease_until is null or lease_until < :now)"


def claim(unit: Unit, kind: str, lease: int, token: str, most: int) -> list[Claimed]:
    """Take up to ``most`` due jobs of a kind, the longest due first; an expired lease is nobody's."""
    skipping = " for update skip locked" if unit.engine == "postgresql" else ""
    due = f"kind = :kind and run_at <= :now and {_FREE} order by run_at limit :most{skipping}"
    which = f"id in (select id from jobs_job where {due})"  # noqa: S608  # ours
    return _take(unit, which, lease, token, kind=kind, most=most)


def claim_key(unit: Unit, kind: str, key: str, lease: int, token: str) -> Claimed | None:
    """Take one job now, due or not; nothing if it is in other hands, or ended."""
    found = _take(unit, f"kind = :kind and key = :key and {_FREE}", lease, token, kind=kind, key=key)
    return found[0] if found else None


def _take(unit: Unit, which: str, lease: int, token: str, **values: Any) -> list[Claimed]:
    taken = unit.change(
        "update jobs_job set lease_until = :until, lease_token = :token, attempts = attempts + 1"  # noqa: S608  # ours
        f" where {which}",
        until=unit.now + lease,
        token=token,
        now=unit.now,
        **values,
    )
    if not taken:
        return []
    rows = unit.all(
        "select id, kind, key, payload, attempts from jobs_job"
        " where kind = :kind and state = 'waiting' and lease_token = :token order by run_at",
        kind=values["kind"],
        token=token,
    )
    return [_claimed(row, token) for row in rows]


def _claimed(row: Row, token: str) -> Claimed:
    return Claimed(row.id, row.kind, row.key, orjson.loads(row.payload), row.attempts, token)


def renew(unit: Unit, claimed: Claimed, lease: int) -> bool:
    """Hold it longer; false if it is no longer ours."""
    return _fenced(unit, claimed, "lease_until = :until", until=unit.now + lease)


def finish(unit: Unit, claimed: Claimed) -> bool:
    """It is done; false if it is no longer ours."""
    return _fenced(unit, claimed, "state = 'done', run_at = :now, last_error = null", now=unit.now, ended=True)


def put_back(unit: Unit, claimed: Claimed, run_at: int, attempts: int, error: str | None = None) -> bool:
    """It shall run again; false if it is no longer ours."""
    change = "run_at = :run_at, attempts = :attempts, last_error = :error"
    return _fenced(unit, claimed, change, run_at=run_at, attempts=attempts, error=error, ended=True)


def fail(unit: Unit, claimed: Claimed, error: str) -> bool:
    """It is given up, and stays to be seen; false if it is no longer ours."""
    change = "state = 'failed', run_at = :now, last_error = :error"
    return _fenced(unit, claimed, change, now=unit.now, error=error, ended=True)


def _fenced(unit: Unit, claimed: Claimed, change: str, *, ended: bool = False, **values: Any) -> bool:
    free = ", lease_until = null, lease_token = null" if ended else ""
    held = unit.change(
        f"update jobs_job set {change}{free} where id = :id and lease_token = :token",  # noqa: S608  # ours
        id=claimed.id,
        token=claimed.token,
        **values,
    )
    return held == 1


def prune(unit: Unit, most: int = 500) -> int:
    """Forget jobs done a day ago and failed a month ago, oldest first; how many went."""
    forget = "select id from jobs_job where state = :state and run_at < :old order by run_at limit :most"
    return sum(
        unit.change(f"delete from jobs_job where id in ({forget})", state=state, old=unit.now - kept, most=most)  # noqa: S608
        for state, kept in ((DONE, DONE_KEPT), (FAILED, FAILED_KEPT))
    )
