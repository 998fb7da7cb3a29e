"""Whether a grant and everything it was made from still live: the walk from leaf to root, on every use.

Implements OIP 1.2 §14.8. Revocation is a mark on one row; this walk is what makes it reach every descendant.
"""

from __future__ import annotations

from dataclasses import dataclass

from deedbox import Unit
from deedbox_capabilities.tables import CAPABILITIES

LIVE = "live"
HOPS = 6


@dataclass(frozen=True, slots=True)
class Chain:
    """How a walk ended: ``live`` or the reason, and whom it passed, leaf first."""

    reason: str
    fingerprints: tuple[str, ...]

    @property
    def live(self) -> bool:
        return self.reason == LIVE


def walk(unit: Unit, leaf: str) -> Chain:
    """Ask every ancestor, at most six of them."""
    passed: list[str] = []
    row = unit.fact(CAPABILITIES, leaf)
    if row is None:
        return Chain("capability_missing", ())
    while True:
        fingerprint, parent = row["fingerprint"], row["parent_fingerprint"]
        fault = _own_fault(row, unit.now, leaf=not passed)
        if fingerprint in passed:
            fault = "delegation_cycle"
        elif len(passed) >= HOPS:
            fault = "delegation_too_deep"
        passed.append(fingerprint)
        if fault:
            return Chain(fault, tuple(passed))
        if parent is None:
            return Chain(LIVE, tuple(passed))
        above = unit.fact(CAPABILITIES, parent)
        if above is None:
            return Chain("ancestor_missing", tuple(passed))
        if above["delegation_depth"] != row["delegation_depth"] - 1 and above["fingerprint"] not in passed:
            return Chain("delegation_depth_mismatch", tuple(passed))
        row = above


def _own_fault(row: dict[str, object], now: int, *, leaf: bool) -> str:
    """What is wrong with one row by itself."""
    before = "" if leaf else "ancestor_"
    depth, parent = row["delegation_depth"], row["parent_fingerprint"]
    if row["revoked"]:
        return f"{before}revoked"
    if int(str(row["expires_at"])) <= now:
        return f"{before}expired"
    if depth == 0 and parent is not None:
        return "unexpected_parent"
    return "ancestor_missing" if depth and parent is None else ""
