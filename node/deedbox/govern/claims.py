"""The one table behind *once*: who asked what before, and the answer that was given (decision 31).

A claim is made before the effect, in the effect's own unit. It is kept at least 24 hours, and until the newest
expiry seen for it plus 300 seconds.
"""

from __future__ import annotations

from typing import Any

from sqlmodel import Field

from deedbox.intent import Intent, Once
from deedbox.storage.tables import Rows, Table
from deedbox.storage.unit import FactRow, Unit

KEPT_AT_LEAST = 24 * 3_600_000
KEPT_AFTER_EXPIRY = 300_000


class Claim(Table, table=True):
    """One spent id: what it stood for, how far its run has come, and the stored, unsigned reply."""

    key: str = Field(primary_key=True)
    digest: str
    state: str
    at: int
    kept_until: int
    owner: str
    grp: int
    reply: bytes | None = None
    meta: str | None = None
    undelivered: bool = False


class Handed(Table, table=True):
    """All replies of one process' group were handed out, but for claims marked undelivered: one row a group."""

    key: str = Field(primary_key=True)
    at: int


HANDED = Rows(Handed, key="key")
CLAIMS = Rows(Claim, key="key")
STARTED, DONE = "started", "done"


def claimed(unit: Unit, once: Once) -> FactRow | None:
    """The earlier claim of the same key, if there is one."""
    return unit.fact(CLAIMS, once.key)


def claim(unit: Unit, intent: Intent, owner: str, *, state: str, reply: bytes | None, meta: str | None) -> None:
    """Spend the id, or write how its run ended."""
    once = intent.once
    if once is None:
        return
    before = unit.fact(CLAIMS, once.key)
    until = max(unit.now + KEPT_AT_LEAST, once.expires_at + KEPT_AFTER_EXPIRY)
    row: dict[str, Any] = {
        "key": once.key,
        "digest": once.digest,
        "state": state,
        "at": before["at"] if before else unit.now,
        "kept_until": max(until, before["kept_until"]) if before else until,
        "owner": owner,
        "grp": unit.group,
        "reply": reply,
        "meta": meta,
        "undelivered": False,
    }
    unit.put(CLAIMS, row)


def mark_handed(unit: Unit, owner: str, groups: list[int]) -> None:
    """Say that everything these groups answered has been given."""
    for group in groups:
        unit.put(HANDED, {"key": f"{owner}/{group}", "at": unit.now})


def mark_undelivered(unit: Unit, key: str) -> None:
    """The peer was gone before it had the reply: its repeat shall be given it."""
    row = unit.fact(CLAIMS, key)
    if row is not None:
        unit.put(CLAIMS, {**row, "undelivered": True})


def was_handed(unit: Unit, row: FactRow) -> bool:
    """Whether the stored reply is known to have left the process that made it."""
    return not row["undelivered"] and unit.fact(HANDED, f"{row['owner']}/{row['grp']}") is not None


def prune(unit: Unit, most: int = 500) -> int:
    """Forget claims whose time is over and marks nobody asks for, oldest first; how many went of the larger sort."""
    claims = unit.change(
        "delete from govern_claim where key in"
        " (select key from govern_claim where kept_until < :now order by kept_until limit :most)",
        now=unit.now,
        most=most,
    )
    marks = unit.change(
        "delete from govern_handed where key in"
        " (select key from govern_handed where at < :old order by at limit :most)",
        old=unit.now - KEPT_AT_LEAST - KEPT_AFTER_EXPIRY,
        most=most,
    )
    return max(claims, marks)
