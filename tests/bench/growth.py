"""What a long past costs: the same node with a million entries and events, and with a thousand, turn by turn.

Both begin as copies of one node that has answered a few messages, and both are loaded by ``tests.bench.bulk``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.bench.load import Plan, plan_text
from tests.bench.process import SERVER_CORE, answer_of, python
from tests.bench.subject import Node, copy_node, make_node, serve_node
from tests.bench.target import Figures, cheapest, take_turns

YOUNG, GROWN, RECENT = 1_000, 1_000_000, 100_000
TURNS, COUNT = 6, 3_000
LOADING_SECONDS = 600.0


@dataclass(frozen=True)
class Pair:
    """The settings of a node with a thousand messages behind it and of one with a million, and how loading went."""

    young: Path
    grown: Path
    loaded: Figures


def grown_pair(folder: Path) -> Pair:
    """Makes both; neither serves."""
    young = make_node(folder, "young")
    with serve_node(young) as node:
        _leave_models(node)
    grown = copy_node(young, "grown")
    return Pair(young, grown, {"young": _loaded(young, YOUNG), "grown": _loaded(grown, GROWN)})


def growth(pair: Pair) -> Figures:
    """Server CPU per envelope with much behind it over the same with little, and the turns it is taken from."""
    with serve_node(pair.young) as young, serve_node(pair.grown) as grown:
        turns = take_turns([young.inbox, grown.inbox], TURNS, COUNT)
    costs = {name: cheapest(taken) for name, taken in turns.items()}
    return {"growth_1m": costs["grown"] / costs["young"], "growth_cpu_us": costs, "growth_turns": turns}


def _leave_models(node: Node) -> None:
    """One query and one invoke, of whose traces the past is made."""
    for capability in (None, node.mint()):
        target = node.inbox
        plan = Plan(target.url, target.recipient, target.pid, 4, 4, 2, capability=capability)
        answer_of(python("tests.bench.load"), plan_text(plan))


def _loaded(settings: Path, count: int) -> Figures:
    command = python("tests.bench.bulk", "--config", str(settings), "--count", str(count), "--recent", str(RECENT))
    figures: Figures = answer_of(command, core=SERVER_CORE, seconds=LOADING_SECONDS)
    return figures
