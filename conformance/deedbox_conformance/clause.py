"""What the judge judges: one requirement, how hard it binds, where it stands, and how it is tried.

Keywords are those of RFC 2119. A clause that cannot be tried fails and says why; *not claimed* is only for what the
node's own documents do not offer.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from deedbox_conformance.probe import Probe

Check: TypeAlias = "Callable[[Probe], Awaitable[None]]"
Keyword = Literal["MUST", "SHOULD"]
Origin = Literal["wire", "node"]


class Outcome(StrEnum):
    """What came of trying a clause."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    NOT_TESTABLE = "not_testable"
    NOT_CLAIMED = "not_claimed"

    @property
    def good(self) -> bool:
        return self in (Outcome.PASS, Outcome.NOT_CLAIMED)


class Finding(Exception):
    """Ends a check early, with the reason in one sentence."""

    outcome: ClassVar[Outcome]


class Failed(Finding):
    """The node does not do what the clause asks."""

    outcome = Outcome.FAIL


class NotTestable(Finding):
    """The clause could not be tried, which counts as a failure."""

    outcome = Outcome.NOT_TESTABLE


class NotClaimed(Finding):
    """The node never said that it does this."""

    outcome = Outcome.NOT_CLAIMED


def expect(holds: object, otherwise: str) -> None:
    """Raise :class:`Failed` with what was seen instead, unless *holds*."""
    if not holds:
        raise Failed(otherwise)


@dataclass(frozen=True, slots=True)
class Result:
    """One clause tried once; ``seconds`` is wall time."""

    clause: Clause
    outcome: Outcome
    detail: str
    seconds: float

    @property
    def fatal(self) -> bool:
        """Whether this alone makes the node not conformant."""
        return self.clause.keyword == "MUST" and not self.outcome.good


@dataclass(frozen=True, slots=True)
class Clause:
    """One requirement.

    ``origin`` is ``wire`` where any implementation of the protocol must agree, ``node`` where the specification asks
    more of a node than the reference does (its [NODE] rules).
    """

    id: str
    keyword: Keyword
    sentence: str
    reference: str
    origin: Origin
    check: Check

    async def judge(self, probe: Probe) -> Result:
        """Try it; never raises, save for cancellation."""
        started = time.monotonic()
        try:
            await self.check(probe)
            outcome, detail = Outcome.PASS, ""
        except Finding as finding:
            outcome, detail = finding.outcome, str(finding)
        except Exception as mistake:
            outcome, detail = Outcome.NOT_TESTABLE, f"the judge itself failed: {type(mistake).__name__}: {mistake}"
        return Result(self, outcome, probe.redacted(detail), time.monotonic() - started)


@dataclass(slots=True)
class Chapter:
    """Collects the clauses of one module, in the order in which they are tried."""

    prefix: str
    clauses: list[Clause] = field(default_factory=list)

    def must(self, number: str, sentence: str, reference: str, origin: Origin = "wire") -> Callable[[Check], Check]:
        return self._decorator("MUST", number, sentence, reference, origin)

    def should(self, number: str, sentence: str, reference: str, origin: Origin = "node") -> Callable[[Check], Check]:
        return self._decorator("SHOULD", number, sentence, reference, origin)

    def _decorator(
        self, keyword: Keyword, number: str, sentence: str, reference: str, origin: Origin
    ) -> Callable[[Check], Check]:
        def enter(check: Check) -> Check:
            where = f"OIP 1.2 {reference}"
            self.clauses.append(Clause(f"{self.prefix}-{number}", keyword, sentence, where, origin, check))
            return check

        return enter
