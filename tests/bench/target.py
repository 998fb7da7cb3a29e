"""What the load is sent to, and how a floor and a node are compared: turn by turn, each turn with fresh envelopes.

The machine is never quiet, so the targets take turns on one core while the client has the other, and the best turn
of each counts: noise only ever takes away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.bench.bare import AGENT
from tests.bench.envelopes import public_jwk
from tests.bench.load import Plan, plan_text
from tests.bench.process import answer_of, python, running

Figures = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """An inbox on loopback and the process behind it. ``ca`` and ``server_name`` only where the URL is https."""

    name: str
    url: str
    recipient: str
    pid: int
    jwk: Mapping[str, str] | None = None
    ca: str | None = None
    server_name: str | None = None
    capability: str | None = None
    """Present: the load is an ``invoke`` under it, not a ``query``."""


@contextmanager
def start_floor(folder: Path, inserts: str) -> Iterator[Target]:
    """The bare-ASGI floor as a target; ``inserts`` is ``thread`` or ``loop``."""
    place = folder / f"floor-{inserts}"
    place.mkdir()
    command = python("tests.bench.floor_asgi", "--folder", str(place), "--inserts", inserts)
    with running(command, place / "log") as process:
        told = process.stdout.readline() if process.stdout else b""
        if not told:
            raise RuntimeError(f"the floor did not start: {(place / 'log').read_text()[-2000:]}")
        url = f"http://127.0.0.1:{orjson.loads(told)['port']}/oip/inbox"
        yield Target(f"floor-{inserts}", url, AGENT, process.pid, public_jwk(AGENT))


def take_turns(targets: Sequence[Target], turns: int, count: int) -> dict[str, list[Figures]]:
    """The figures of every turn by target; raises when a reply was wrong, for then the speed means nothing."""
    taken: dict[str, list[Figures]] = {target.name: [] for target in targets}
    for turn in range(turns):
        for target in targets if turn % 2 == 0 else reversed(targets):
            taken[target.name].append(_one_turn(target, count))
    return taken


def best(turns: Sequence[Figures]) -> float:
    """The fastest turn, envelopes a second."""
    return max(float(turn["per_s"]) for turn in turns)


def cheapest(turns: Sequence[Figures]) -> float:
    """The least server CPU of a turn, microseconds an envelope."""
    return min(float(turn["server_cpu_us"]) for turn in turns)


def _one_turn(target: Target, count: int) -> Figures:
    plan = Plan(
        url=target.url,
        recipient=target.recipient,
        pid=target.pid,
        count=count,
        ca=target.ca,
        server_name=target.server_name,
        capability=target.capability,
        recipient_jwk=dict(target.jwk) if target.jwk else None,
    )
    figures: Figures = answer_of(python("tests.bench.load"), plan_text(plan))
    if figures["not_200"] or figures["wrong"]:
        raise RuntimeError(
            f"{target.name}: {figures['wrong']} wrong replies, first: {figures['first_wrong']}; "
            f"statuses: {figures['not_200']}"
        )
    return figures


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))
