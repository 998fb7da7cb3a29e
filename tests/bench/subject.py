"""The node under test, started as an operator starts it: ``deedbox serve`` in a process of its own, on loopback."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.target import Target


class SubjectMissing(Exception):
    """What should be measured is not there; says what."""


@dataclass(frozen=True)
class Node:
    """A running node: where it takes envelopes, how long it took to be ready, and a capability it minted for us."""

    inbox: Target
    ready_s: float
    capability: str | None


def start_node(folder: Path, *, database: str | None = None) -> AbstractContextManager[Node]:
    """A node that lives as long as the block, its files in ``folder``; raises ``SubjectMissing`` where none exists.

    ``database`` is a PostgreSQL URL, or ``None`` for SQLite in the folder. Only the per-domain quota is raised;
    nothing is switched off.
    """
    raise SubjectMissing("deedbox serve is not hooked up yet")
