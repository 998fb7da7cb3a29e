"""Which clauses there are, which of them a protocol version demanded, and how they are tried one after the other.

Further clauses come from other distributions by the entry-point group `deedbox_conformance` (name of a claim = module
with `CLAUSES`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata, resources
from typing import Final

from deedbox_conformance.clause import Clause, Result
from deedbox_conformance.probe import Probe

GROUP: Final = "deedbox_conformance"
LATEST: Final = "oip-1.2"
BUILT_IN: Final = {
    "oip": "deedbox_conformance.clauses.oip",
    "inbox": "deedbox_conformance.clauses.inbox",
    "federation": "deedbox_conformance.clauses.federation",
}


@dataclass(frozen=True, slots=True)
class Requirements:
    """What one version of a protocol demanded: *wire* of everybody, *node* of a node of this profile besides."""

    version: str
    wire: Sequence[str]
    node: Sequence[str]

    def ids(self, profile: str = "node") -> frozenset[str]:
        return frozenset(self.wire) | (frozenset(self.node) if profile == "node" else frozenset())


def modules() -> dict[str, str]:
    """Name of each claim and the module that holds its clauses, the built-in ones first."""
    return BUILT_IN | {entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}


def load_clauses() -> list[Clause]:
    """All clauses in the order in which they are tried; ids are unique."""
    clauses: list[Clause] = [clause for module in modules().values() for clause in import_module(module).CLAUSES]
    ids = [clause.id for clause in clauses]
    twice = {name for name in ids if ids.count(name) > 1}
    if twice:
        raise ValueError(f"clause ids are not unique: {sorted(twice)}")
    return clauses


def required(version: str = LATEST) -> Requirements:
    """The frozen list of a version; ``LookupError`` if there is none."""
    source = resources.files(GROUP) / "requirements" / f"{version}.toml"
    if not source.is_file():
        raise LookupError(f"no requirements are kept for {version!r}")
    table = tomllib.loads(source.read_text("utf-8"))
    return Requirements(version, table["wire"], table["node"])


def select(clauses: Iterable[Clause], ids: frozenset[str] | None, only: Sequence[str] = ()) -> list[Clause]:
    """Those among *ids* whose id starts with one of *only*; an empty *only* means all."""
    return [
        clause
        for clause in clauses
        if (ids is None or clause.id in ids) and (not only or clause.id.startswith(tuple(only)))
    ]


async def judge(
    probe: Probe, clauses: Iterable[Clause], tell: Callable[[Result], object] | None = None
) -> list[Result]:
    """Try every clause in turn; *tell* hears of each result as it comes."""
    results = []
    for clause in clauses:
        result = await clause.judge(probe)
        results.append(result)
        if tell is not None:
            tell(result)
    return results
