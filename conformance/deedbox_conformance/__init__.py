"""A judge for OIP 1.2 nodes that shares no code with the node it judges."""

from __future__ import annotations

from deedbox_conformance.clause import Clause, Outcome, Result
from deedbox_conformance.client import Client, Trust
from deedbox_conformance.peer import Peer
from deedbox_conformance.probe import Probe
from deedbox_conformance.report import Report, render_markdown
from deedbox_conformance.suite import judge, load_clauses, required

__all__ = [
    "Clause",
    "Client",
    "Outcome",
    "Peer",
    "Probe",
    "Report",
    "Result",
    "Trust",
    "judge",
    "load_clauses",
    "render_markdown",
    "required",
]
