"""Ending a capability and, marked with it, everything that was made from it (OIP 1.2 §14.12)."""

from __future__ import annotations

from typing import Any

from deedbox import Arguments, Kernel, Operation, Refusal, Stated, Unit
from deedbox.clock import server_law
from deedbox_capabilities.chain import HOPS
from deedbox_capabilities.tables import CAPABILITIES
from deedbox_capabilities.tokens import is_fingerprint


class Named(Arguments):
    """Which capability, by fingerprint."""

    fingerprint: str


class Revoke:
    """The runner of CAPABILITY_REVOKE; doing it again changes nothing and says so."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def run(self, unit: Unit, named: Named, operation: Operation) -> Stated:
        if not is_fingerprint(named.fingerprint):
            detail = "a fingerprint is cap_ and 16 hexadecimal digits"
            raise Refusal("bad fingerprint", 400, detail, extra={"ok": False})
        row = unit.fact(CAPABILITIES, named.fingerprint)
        if row is None:
            raise Refusal("unknown_capability", 404, "no capability has this fingerprint", extra={"ok": False})
        before = bool(row["revoked"])
        if not before:
            row = _end(unit, row)
        descendants = _end_descendants(unit, named.fingerprint)
        told = {
            "ok": True,
            "fingerprint": named.fingerprint,
            "revoked": True,
            "was_already_revoked": before,
            "revoked_ts": server_law(row["revoked_ts"], self._kernel.zone),
            "descendants_revoked": descendants,
            "revoked_count": len(descendants) + (not before),
        }
        return Stated(told, {"capability": named.fingerprint, "descendants": descendants})


def _end(unit: Unit, row: dict[str, Any]) -> dict[str, Any]:
    ended = {**row, "revoked": True, "revoked_ts": unit.now}
    unit.put(CAPABILITIES, ended)
    return ended


def _end_descendants(unit: Unit, root: str) -> list[str]:
    """Breadth first, as deep as a chain can be; the walk at use is what protects, this is what people see."""
    ended: list[str] = []
    level = [root]
    for _ in range(HOPS):
        below = [child for parent in level for child in _children(unit, parent)]
        for child in below:
            row = unit.fact(CAPABILITIES, child)
            if row is not None and not row["revoked"]:
                _end(unit, row)
                ended.append(child)
        level = below
    return ended


def _children(unit: Unit, parent: str) -> list[str]:
    rows = unit.all(
        "select fingerprint from capabilities_capability where parent_fingerprint = :parent order by ts", parent=parent
    )
    return [str(row.fingerprint) for row in rows]
