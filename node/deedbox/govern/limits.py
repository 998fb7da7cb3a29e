"""Step 1, limits: a shield per address in process, exact quotas a principal in the unit, and a cap on refusal events.

A *law* is a number the specification states and is kept in a row; a *shield* is in process, at least four times the
law, and stands before any signature (decision 36).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlmodel import Field

from deedbox.refusals import Refusal
from deedbox.settings import parse_rate
from deedbox.storage.tables import Rows, Table
from deedbox.storage.unit import Unit

ADDRESSES_REMEMBERED = 65_536
REFUSALS_AN_ADDRESS = "30/min"
REFUSALS_IN_ALL = "600/min"


class Quota(Table, table=True):
    """How far a principal has spent a law: the instant until which its allowance is used up, in milliseconds."""

    key: str = Field(primary_key=True)
    used_until: int


QUOTAS = Rows(Quota, key="key")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in so many milliseconds, spent evenly with a burst of the whole (the generic cell rate algorithm)."""

    count: int
    span: int

    @classmethod
    def of(cls, text: str) -> Rate:
        return cls(*parse_rate(text))

    def spend(self, used_until: int, now: int) -> tuple[bool, int]:
        """Whether one more fits, and the mark afterwards; if it does not, the mark minus the span is when it will.

        Marks are in units of 1/``count`` milliseconds, so that no rate is rounded.
        """
        mark = max(used_until, now * self.count) + self.span
        return mark <= (now + self.span) * self.count, mark

    def wait(self, mark: int, now: int) -> int:
        """Whole seconds until one more fits."""
        lacking = mark - (now + self.span) * self.count
        return max(1, -(-lacking // (self.count * 1000)))


def spend_quota(unit: Unit, key: str, rate: Rate, now: int) -> None:
    """Charge a law; refuses ``rate_limited`` with the exact wait and writes nothing then."""
    row = unit.fact(QUOTAS, key)
    fits, mark = rate.spend(row["used_until"] if row else 0, now)
    if not fits:
        raise Refusal("rate_limited", 429, "this principal has spent its allowance", retry_after=rate.wait(mark, now))
    unit.put(QUOTAS, {"key": key, "used_until": mark})


class Shield:
    """Rates kept in process by a key such as an address; forgets the oldest when it knows too many."""

    def __init__(self, rate: str) -> None:
        self._rate = Rate.of(rate)
        self._marks: dict[str, int] = {}

    def admits(self, key: str, now: int) -> bool:
        """Whether one more from this key fits, charging it if so."""
        fits, mark = self._rate.spend(self._marks.get(key, 0), now)
        if fits:
            self._marks[key] = mark
            if len(self._marks) > ADDRESSES_REMEMBERED:
                self._forget(now)
        return fits

    def check(self, key: str, now: int) -> None:
        """The same as a refusal."""
        if not self.admits(key, now):
            wait = self._rate.wait(self._marks[key] + self._rate.span, now)
            raise Refusal("rate_limited", 429, "too many requests from this address", retry_after=wait)

    def spent(self, key: str, now: int) -> bool:
        """Whether the next one would be refused; charges nothing."""
        return not self._rate.spend(self._marks.get(key, 0), now)[0]

    def _forget(self, now: int) -> None:
        alive = {key: mark for key, mark in self._marks.items() if mark > now * self._rate.count}
        self._marks = alive if len(alive) <= ADDRESSES_REMEMBERED else dict(list(alive.items())[len(alive) // 2 :])


class RefusalEvents:
    """How many refusals of callers nobody recognises are written; the rest is only counted (decision 32)."""

    def __init__(self) -> None:
        self._each = Shield(REFUSALS_AN_ADDRESS)
        self._all = Shield(REFUSALS_IN_ALL)
        self._dropped: dict[str, int] = {}

    def worth_writing(self, address: str, code: str, now: int) -> bool:
        """Whether this one becomes an event; counts it by its code if not."""
        if self._each.admits(address, now) and self._all.admits("", now):
            return True
        self._dropped[code] = self._dropped.get(code, 0) + 1
        return False

    def take_counts(self) -> dict[str, int]:
        """What was only counted since the last batch, for the batch entry."""
        counts, self._dropped = self._dropped, {}
        return counts
