"""What the judge found, for people (text, Markdown) and for programs (JSON, in the members of OIP 1.2 §21)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deedbox_conformance import wire
from deedbox_conformance.clause import Clause, Outcome, Result
from deedbox_conformance.suite import load_clauses

_MARKS = {Outcome.PASS: "ok", Outcome.FAIL: "FAIL", Outcome.NOT_TESTABLE: "NOT TESTABLE", Outcome.NOT_CLAIMED: "-"}


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one run against *target*; ``ran_at`` in milliseconds since the epoch."""

    target: str
    version: str
    profile: str
    ran_at: int
    results: Sequence[Result]

    @property
    def conformant(self) -> bool:
        """No MUST failed or could not be tested, and something was tried."""
        return bool(self.results) and not any(result.fatal for result in self.results)

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(result.outcome for result in self.results)
        return {str(outcome): found[outcome] for outcome in Outcome}

    @property
    def verdict(self) -> str:
        parts = [f"{number} {name.replace('_', ' ')}" for name, number in self.counts.items() if number]
        conformant = "conformant" if self.conformant else "NOT conformant"
        return f"{self.target} is {conformant} to {self.version} ({self.profile} profile): {', '.join(parts)}"

    def to_json(self) -> str:
        applicable = [result for result in self.results if result.outcome is not Outcome.NOT_CLAIMED]
        document: dict[str, object] = {
            "kind": "oip_conformance",
            "protocol": "OIP",
            "spec": self.version,
            "profile": self.profile,
            "target": self.target,
            "ran_at": wire.utc_z(self.ran_at),
            "clauses": [_entry(result) for result in self.results],
            "passed": self.counts["pass"],
            "applicable": len(applicable),
            "not_applicable": len(self.results) - len(applicable),
            "total": len(self.results),
            "counts": self.counts,
            "conformant": self.conformant,
            "verdict": self.verdict,
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def to_text(self) -> str:
        """One line a clause, and for what did not pass a second one that says why."""
        return "\n".join([*map(line, self.results), "", self.verdict])

    def to_markdown(self) -> str:
        rows = [
            f"| {result.clause.id} | {result.clause.keyword} | {_cell(result.clause.sentence)} | "
            f"{_MARKS[result.outcome]} | {_cell(result.detail)} |"
            for result in self.results
        ]
        head = ["| clause | | requirement | outcome | why |", "|---|---|---|---|---|"]
        return "\n".join([f"# Conformance of {self.target}", "", self.verdict + ".", "", *head, *rows, ""])


def line(result: Result) -> str:
    """A result for a terminal."""
    first = f"{_MARKS[result.outcome]:>12}  {result.clause.id:<14} {result.clause.keyword:<6} {result.clause.sentence}"
    return first if not result.detail else f"{first}\n{'':>14}{result.detail}"


def _entry(result: Result) -> dict[str, object]:
    clause = result.clause
    passed = {Outcome.PASS: True, Outcome.NOT_CLAIMED: None}.get(result.outcome, False)
    return {
        "id": clause.id,
        "title": clause.sentence,
        "requirement": clause.keyword,
        "origin": clause.origin,
        "reference": clause.reference,
        "outcome": str(result.outcome),
        "pass": passed,
        "evidence": result.detail,
        "seconds": round(result.seconds, 3),
    }


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def render_markdown(clauses: Sequence[Clause] | None = None) -> str:
    """The page that lists all clauses, for the documentation."""
    listed = load_clauses() if clauses is None else clauses
    lines = [
        "# Conformance clauses",
        "",
        "What `deedbox conformance URL` tries, in this order. This page is generated from the clauses themselves.",
        "",
        "A clause passes, fails, or is *not testable*, which says why and counts as a failure. *Not claimed* is only",
        "for what the node's own documents do not offer. A node is conformant when no MUST failed. Origin `wire` is",
        "what any implementation must agree on; `node` is what the specification asks of a node beyond the reference;",
        "the option `--profile wire` leaves the latter out. References are to the specification of OIP 1.2.",
    ]
    chapter = ""
    for clause in listed:
        if (prefix := clause.id.rpartition("-")[0]) != chapter:
            chapter = prefix
            lines += [
                "",
                f"## {chapter}",
                "",
                "| clause | | requirement | reference | origin |",
                "|---|---|---|---|---|",
            ]
        reference = clause.reference.removeprefix("OIP 1.2 ")
        lines.append(
            f"| {clause.id} | {clause.keyword} | {_cell(clause.sentence)} | {_cell(reference)} | {clause.origin} |"
        )
    return "\n".join([*lines, ""])
