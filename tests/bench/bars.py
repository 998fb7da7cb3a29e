"""The figures a release must reach, and the page that says which it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bar:
    """One figure's bound: ``name`` as in the JSON, dotted; ``at_least`` tells on which side of ``bound`` it may lie."""

    name: str
    bound: float
    at_least: bool
    unit: str = ""

    def passed(self, figure: float) -> bool:
        return figure >= self.bound if self.at_least else figure <= self.bound


BARS = (
    Bar("envelopes.ratio_to_floor", 0.5, at_least=True),
    Bar("envelopes.postgres_ratio", 0.25, at_least=True),
    Bar("envelopes.growth_1m", 1.1, at_least=False),
    Bar("ledger_replay_ratio", 0.5, at_least=True),
    Bar("replay_rss_growth_mb", 4, at_least=False, unit="MB"),
    Bar("idle_mb", 120, at_least=False, unit="MB"),
    Bar("help_ms", 150, at_least=False, unit="ms"),
    Bar("ready_s", 1.5, at_least=False, unit="s"),
)


def figure_of(results: Mapping[str, Any], name: str) -> float | None:
    """The figure under a dotted name, or ``None``."""
    found: Any = results
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


def is_missed(results: Mapping[str, Any], name: str) -> bool:
    """Whether a bar's figure was taken and does not reach it."""
    figure = figure_of(results, name)
    return figure is not None and not next(bar for bar in BARS if bar.name == name).passed(figure)


def judged(results: Mapping[str, Any], reasons: Mapping[str, str]) -> tuple[list[str], bool]:
    """A line a bar, and whether all are reached; a figure that was not measured is not reached."""
    lines, reached = [], True
    for bar in BARS:
        figure = figure_of(results, bar.name)
        sign = "≥" if bar.at_least else "≤"
        if figure is None:
            lines.append(f"----  {bar.name}: not measured: {reasons.get(bar.name, 'no reason given')}")
            reached = False
            continue
        passed = bar.passed(figure)
        reached = reached and passed
        lines.append(f"{'ok  ' if passed else 'FAIL'}  {bar.name} {figure:.3g} {bar.unit} ({sign} {bar.bound:g})")
    return lines, reached
