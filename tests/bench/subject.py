"""The node under test, started as an operator starts it: ``deedbox init``, ``deedbox serve``, ``deedbox mint``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.request import urlopen

import orjson

from tests.bench.envelopes import DOMAIN
from tests.bench.peer import published_senders
from tests.bench.process import environment, running
from tests.bench.target import Target

NODE_DOMAIN = "node.test"
UNBOUNDED = "999999/min"
_DEEDBOX = (sys.executable, "-m", "deedbox")
_FACETS = ("wellknown", "inbox", "capabilities", "dispatch", "basics", "https")


class SubjectMissing(Exception):
    """What should be measured is not there; says what."""


@dataclass(frozen=True)
class Node:
    """A running node and where it takes envelopes."""

    inbox: Target
    settings: Path

    def mint(self) -> str:
        """A capability for the load's invokes, of any number of uses."""
        terms = ("row:ECHO", "--uses", "0", "--audience", DOMAIN)
        told = deedbox("mint", *terms, "--config", str(self.settings), "--json")
        token: str = orjson.loads(told)["value"]["share_token"]
        return token


@contextmanager
def start_node(folder: Path, *, database: str | None = None, name: str = "node") -> Iterator[Node]:
    """A new node that lives as long as the block, its files in ``folder``."""
    with serve_node(make_node(folder, name, database)) as node:
        yield node


def make_node(folder: Path, name: str, database: str | None = None) -> Path:
    """The settings file of a new node, in a folder of its name in ``folder``; it serves nobody yet.

    ``database`` is a PostgreSQL URL, or ``None`` for SQLite in the folder. It speaks plain HTTP, as behind a proxy and
    as the floor does. The per-domain quota and the shield are raised; their counters still run, nothing is off.
    """
    place = folder / name
    place.mkdir()
    settings = place / "deedbox.toml"
    settings.write_text(settings_text(_trust_of(place), database))
    deedbox("init", "--upgrade", "--folder", str(place))
    return settings


def copy_node(settings: Path, name: str) -> Path:
    """The settings file of a second node with the same keys and the same past, beside the first; neither is serving."""
    place = settings.parent.with_name(name)
    shutil.copytree(settings.parent, place)
    copy = place / settings.name
    copy.write_text(settings_text(_trust_of(place), None))
    return copy


@contextmanager
def serve_node(settings: Path) -> Iterator[Node]:
    """The node of a settings file while the block lasts, and its senders' domain beside it."""
    place = settings.parent
    with published_senders(_trust_of(place)), served(settings, place / "log") as (pid, port, _):
        url = f"http://127.0.0.1:{port}/oip/inbox"
        target = Target(place.name, url, f"node@{NODE_DOMAIN}", pid, _published(port))
        yield Node(target, settings)


def _trust_of(place: Path) -> Path:
    return place.with_name(f"{place.name}-trust")


def settings_text(trust: Path, database: str | None) -> str:
    """The settings an operator would write who expects much traffic from one domain."""
    lines = ["[node]", f'domain = "{NODE_DOMAIN}"', f'development = "{trust}"', 'listen = "127.0.0.1:0"']
    lines += [f'database = "{database}"'] if database else []
    lines += ["[node.tls]", 'mode = "proxy"', "[limits.inbox]", f'rate = "{UNBOUNDED}"']
    lines += ["[limits.shield]", f'address = "{UNBOUNDED}"', *(f"[facets.{facet}]" for facet in _FACETS)]
    return "\n".join(lines) + "\n"


def deedbox(*arguments: str) -> bytes:
    """Run a command to its end; what it printed."""
    done = subprocess.run([*_DEEDBOX, *arguments], capture_output=True, check=False, env=environment())
    if done.returncode != 0:
        raise RuntimeError(f"deedbox {arguments[0]}: {done.stderr.decode()[-2000:]}")
    return done.stdout


@contextmanager
def served(settings: Path, log: Path) -> Iterator[tuple[int, int, float]]:
    """The process, its port, and the seconds until it said that it was ready; what else it prints goes to a file."""
    began = time.perf_counter()
    with running([*_DEEDBOX, "serve", "--config", str(settings)], log) as process:
        line = process.stdout.readline() if process.stdout else b""
        ready_s = time.perf_counter() - began
        if not line.startswith(b"ready: "):
            raise RuntimeError(f"deedbox serve did not start: {log.read_text()[-2000:]}")
        yield process.pid, int(line.rsplit(b":", 1)[1]), ready_s


def _published(port: int) -> dict[str, str]:
    """The key the node's own document gives for its agent."""
    answer: IO[bytes]
    with urlopen(f"http://127.0.0.1:{port}/.well-known/oip.json", timeout=10) as answer:
        document = orjson.loads(answer.read())
    key: dict[str, str] = document["agents"][0]["public_key_jwk"]
    return key
