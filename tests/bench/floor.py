"""The bare loop: the steps of the floor one after the other in one thread, without a network."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import orjson

from tests.bench.bare import AGENT, GROUP, Door, Journal
from tests.bench.envelopes import SENDERS, query, signed


def bare_loop(count: int, folder: Path) -> dict[str, float]:
    """Envelopes a second, and the share of the time that proving, writing and signing took."""
    requests = [signed(query(SENDERS[n % len(SENDERS)], AGENT, n)) for n in range(count)]
    door, journal = Door(), Journal(folder)
    spent = {"prove": 0.0, "write": 0.0, "sign": 0.0}
    for start in range(0, count, GROUP):
        began = time.perf_counter()
        group = [door.prove(raw) for raw in requests[start : start + GROUP]]
        proven = time.perf_counter()
        journal.insert(group)
        journal.commit()
        written = time.perf_counter()
        for asked in group:
            door.reply(asked)
        spent["prove"] += proven - began
        spent["write"] += written - proven
        spent["sign"] += time.perf_counter() - written
    if journal.count() != count:
        raise RuntimeError("the bare loop lost an entry")
    total = sum(spent.values())
    return {"per_s": count / total, **{f"{step}_share": seconds / total for step, seconds in spent.items()}}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--folder", type=Path, required=True, help="where the database may be made")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        print(orjson.dumps(bare_loop(chosen.count, Path(folder))).decode())


if __name__ == "__main__":
    main()
