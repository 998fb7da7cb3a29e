"""Measures the node beside its floor and says which bars it reaches: ``./run bench [--json] [--small]``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # `python tests/bench/run.py` puts only its own folder there
    sys.path.insert(0, str(ROOT))

import orjson  # noqa: E402

from tests.bench.bars import is_missed, judged  # noqa: E402
from tests.bench.growth import grown_pair, growth  # noqa: E402
from tests.bench.process import SERVER_CORE, answer_of, python  # noqa: E402
from tests.bench.standing import help_ms, idle_mb, ready_s  # noqa: E402
from tests.bench.subject import SubjectMissing, make_node, serve_node, start_node  # noqa: E402
from tests.bench.target import Figures, best, cheapest, cores, start_floor, take_turns  # noqa: E402
from tests.postgres import NoServer, cluster  # noqa: E402

FULL_TURNS, FULL_COUNT = 4, 5_000
RATIOS = {"node": "ratio_to_floor", "node-invoke": "invoke_ratio", "node-postgres": "postgres_ratio"}
SMALL_TURNS, SMALL_COUNT = 2, 1_500


@dataclass
class Report:
    """Figures by name, and for every figure that could not be taken the reason."""

    results: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def measuring(self, *names: str) -> Iterator[None]:
        """Where the subject or a server it needs is missing, the block's figures are left out and the reason kept."""
        try:
            yield
        except (SubjectMissing, NoServer) as missing:
            self.reasons.update(dict.fromkeys(names, str(missing)))


def main(arguments: list[str] | None = None) -> int:
    """0 when every bar is reached (small: when the node ran and answered rightly), else 1."""
    options = argparse.ArgumentParser(prog="bench", description=__doc__)
    options.add_argument("--json", action="store_true", help="print one JSON object, the figures of every turn in it")
    options.add_argument("--small", action="store_true", help="ten seconds: only the ratio to the floor, no bars")
    options.add_argument("--folder", type=Path, default=_on_disk(), help="a folder on a real disk, for the databases")
    chosen = options.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="deedbox-bench-", dir=chosen.folder) as folder:
        return small(Path(folder), chosen.json) if chosen.small else full(Path(folder), chosen.json)


def small(folder: Path, as_json: bool) -> int:
    """Prints the ratio to the floor from a short run."""
    report = Report()
    with ExitStack() as open_:
        targets = [open_.enter_context(start_floor(folder, "loop"))]
        with report.measuring("envelopes.ratio_to_floor"):
            targets.append(open_.enter_context(start_node(folder)).inbox)
        report.results["envelopes"] = envelopes(take_turns(targets, SMALL_TURNS, SMALL_COUNT))
    found = report.results["envelopes"]
    if as_json:
        print(_json(report))
    else:
        print(f"floor {found['floor_per_s']:.0f}/s", end="; ")
        ratio, missing = found.get("ratio_to_floor"), report.reasons.get("envelopes.ratio_to_floor")
        print(f"ratio to floor: not measured: {missing}" if missing else f"ratio to floor {ratio:.2f}")
    return 1 if report.reasons else 0


def full(folder: Path, as_json: bool) -> int:
    """Takes every figure that has a subject, prints them and judges them against the bars.

    Noise only ever takes away, so a part of which a bar is missed is measured once more, and then its figure counts.
    """
    report, began = Report(), time.monotonic()
    report.results["machine"] = {"cores": cores(), "load_before": os.getloadavg()[0]}
    for part, names in PARTS.items():
        part(_made(folder / "first"), report)
        missed = [name for name in names if is_missed(report.results, name)]
        if missed:
            print(f"missed, so measured once more: {', '.join(missed)}", file=sys.stderr, flush=True)
            part(_made(folder / "second"), report)
    report.results["seconds"] = time.monotonic() - began
    lines, reached = judged(report.results, report.reasons)
    print(_json(report) if as_json else "\n".join(_figures(report.results) + lines))
    return 0 if reached else 1


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _help_page(folder: Path, report: Report) -> None:
    with report.measuring("help_ms"):
        report.results["help_ms"] = help_ms()


def _beside_the_floor(folder: Path, report: Report) -> None:
    """The two floors and the node on both engines, turn by turn."""
    with ExitStack() as open_:
        targets = [open_.enter_context(start_floor(folder, inserts)) for inserts in ("thread", "loop")]
        with report.measuring("envelopes.ratio_to_floor", "ready_s", "idle_mb"):
            settings = make_node(folder, "node")
            report.results["ready_s"] = ready_s(settings)
            node = open_.enter_context(serve_node(settings))
            report.results["idle_mb"] = idle_mb(node)
            targets += [node.inbox, replace(node.inbox, name="node-invoke", capability=node.mint())]
        with report.measuring("envelopes.postgres_ratio"):
            url = open_.enter_context(cluster())
            targets.append(open_.enter_context(start_node(folder, database=url, name="node-postgres")).inbox)
        taken = envelopes(take_turns(targets, FULL_TURNS, FULL_COUNT))
    report.results["envelopes"] = taken | {"bare_loop": _bare_loop(folder)}


def _bare_loop(folder: Path) -> Figures:
    bare = python("tests.bench.floor", "--folder", str(folder))
    loops: list[Figures] = [answer_of(bare, core=SERVER_CORE) for _ in range(3)]
    return max(loops, key=lambda loop: float(loop["per_s"]))


def _with_a_past(folder: Path, report: Report) -> None:
    """What a million entries and events cost a message, and how fast and in how much memory they are replayed."""
    pair = grown_pair(folder)
    report.results["loaded"] = pair.loaded
    report.results["envelopes"] |= growth(pair)
    ledger = python("tests.bench.replay", "--database", str(pair.grown.with_name("deedbox.db")))
    report.results |= answer_of(ledger, core=SERVER_CORE)


PARTS: dict[Callable[[Path, Report], None], tuple[str, ...]] = {
    _help_page: ("help_ms",),
    _beside_the_floor: ("envelopes.ratio_to_floor", "envelopes.postgres_ratio", "idle_mb", "ready_s"),
    _with_a_past: ("envelopes.growth_1m", "ledger_replay_ratio", "replay_rss_growth_mb"),
}
"""What is measured together, and the bars it answers for."""


def envelopes(turns: dict[str, list[Figures]]) -> Figures:
    """The ``envelopes`` object: rates, ratios (over the faster floor, as fast as which is 1), and every turn."""
    floors = [taken for name, taken in turns.items() if name.startswith("floor-")]
    floor, cost = max(map(best, floors)), min(map(cheapest, floors))
    found: Figures = {"floor_per_s": floor, "floor_cpu_us": cost}
    for name, ratio in RATIOS.items():
        if name in turns:
            found |= {f"{name}_per_s": best(turns[name]), f"{name}_cpu_us": cheapest(turns[name])}
            found[ratio] = best(turns[name]) / floor
    if "node" in turns:
        found["cpu_ratio"] = cost / found["node_cpu_us"]
    return found | {"turns": turns}


def _figures(results: dict[str, Any]) -> list[str]:
    found, loaded = results["envelopes"], results["loaded"]["grown"]
    lines = [f"bare loop {found['bare_loop']['per_s']:.0f}/s"]
    for name, turns in (found["turns"] | found["growth_turns"]).items():
        fastest = max(turns, key=lambda turn: float(turn["per_s"]))
        lines.append(
            f"{name} {fastest['per_s']:.0f}/s, p50 {fastest['p50_ms']:.1f} ms, p99 {fastest['p99_ms']:.1f} ms, "
            f"server {cheapest(turns):.0f} µs/envelope on {fastest['server_cores']:.2f} cores, "
            f"{fastest['server_rss_mb']:.0f} MB; client on {fastest['client_cores']:.2f} cores"
        )
    lines.append(
        f"{loaded['ledger_entry']} entries loaded in {loaded['seconds']:.0f} s: {loaded['database_mb']:.0f} MB"
    )
    lines.append(
        f"ledger replay {results['ledger_replay_per_s']:.0f}/s, grew by {results['replay_rss_growth_mb']:.1f} MB"
    )
    lines.append(f"all in {results['seconds']:.0f} s")
    return lines


def _json(report: Report) -> str:
    return orjson.dumps(report.results | {"not_measured": report.reasons}).decode()


def _on_disk() -> Path:
    """FHS 3.0 §5.15: ``/var/tmp`` outlives a reboot, so it is no memory disk, on which a commit would cost nothing."""
    return Path("/var/tmp") if os.access("/var/tmp", os.W_OK) else Path(tempfile.gettempdir())


if __name__ == "__main__":
    sys.exit(main())
