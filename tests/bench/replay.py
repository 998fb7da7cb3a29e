"""How fast a ledger is replayed, chain and tree, beside a bare loop that hashes the same rows; and in how much memory.

The bare loop does what both comparisons need and nothing else: a leaf hash for every header, a node hash for every
pair (RFC 9162 §2.1). Both read the rows from the same file with the same query, take turns, and must find one root.
Seconds are of CPU, for the machine is never quiet and neither waits for anything.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import time
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import orjson

from deedbox.ledger.records import SqliteFile
from deedbox.ledger.verify import Trust, verify
from tests.bench.process import resident_mb

RUN = 256
TURNS = 2
EARLY = 100_000
_ROWS = "select seq, header, leaf from ledger_entry order by seq"


def bare(path: Path) -> tuple[int, bytes]:
    """How many rows there are, and the root over them."""
    edge: dict[int, bytes] = {}
    size = 0
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute(_ROWS)
        while run := rows.fetchmany(RUN):
            nodes = [sha256(b"\x00" + header).digest() for _, header, _ in run]
            _extend(edge, size, nodes)
            size += len(run)
    root = b""
    for level in sorted(edge):
        root = sha256(b"\x01" + edge[level] + root).digest() if root else edge[level]
    return size, root


def _extend(edge: dict[int, bytes], size: int, nodes: list[bytes]) -> None:
    """Add leaves behind the first ``size``; ``edge`` has at each level the node that still waits for its sibling."""
    level = 0
    while nodes:
        if level in edge:
            nodes.insert(0, edge.pop(level))
        if len(nodes) & 1:
            edge[level] = nodes.pop()
        nodes = [sha256(b"\x01" + nodes[at] + nodes[at + 1]).digest() for at in range(0, len(nodes), 2)]
        level += 1


class Memory:
    """Resident memory when the replay had come so far."""

    def __init__(self) -> None:
        self.early = 0.0

    def progress(self, entries: int) -> None:
        if not self.early and entries >= EARLY:
            self.early = resident_mb(os.getpid())


def replay(path: Path) -> dict[str, float]:
    """Entries a second of CPU of both, the best of their turns, and how much memory grew after the first 100,000."""
    memory, growth = Memory(), 0.0
    seconds: dict[str, list[float]] = {"replay": [], "bare": []}
    for turn in range(TURNS):
        began = time.process_time()
        verdict = verify(SqliteFile(path, payloads=False), Trust(), memory.progress)
        growth = growth if turn else resident_mb(os.getpid()) - memory.early
        replayed = time.process_time()
        size, root = bare(path)
        seconds["bare"].append(time.process_time() - replayed)
        seconds["replay"].append(replayed - began)
        if not verdict.good or (verdict.size, verdict.root) != (size, root):
            raise RuntimeError(f"the verifier says {verdict.state} for {verdict.size} of {size} entries")
    rates = {f"ledger_{name}_per_s": size / min(taken) for name, taken in seconds.items()}
    ratio = rates["ledger_replay_per_s"] / rates["ledger_bare_per_s"]
    return {**rates, "ledger_replay_ratio": ratio, "replay_rss_growth_mb": growth}


def main() -> None:
    """Measures the ledger in one SQLite file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--database", type=Path, required=True)
    print(orjson.dumps(replay(options.parse_args().database.resolve())).decode())


if __name__ == "__main__":
    main()
