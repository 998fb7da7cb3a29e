"""What a node costs before anybody asks it anything: its memory, its start, its help page."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.bench.process import resident_mb
from tests.bench.subject import Node, SubjectMissing, served

_SETTLING_SECONDS = 2.0
_TRIES, _STARTS = 10, 3


def help_ms() -> float:
    """Wall time of ``deedbox --help``, the best of ten, milliseconds."""
    command = Path(sys.executable).parent / "deedbox"
    if not command.exists():
        raise SubjectMissing("no deedbox command beside this Python: the project is not installed")
    return min(_wall_ms(command) for _ in range(_TRIES))


def ready_s(settings: Path) -> float:
    """Seconds from the command to the line that says it serves, the best of three starts of a node."""
    return min(_starting_s(settings) for _ in range(_STARTS))


def _starting_s(settings: Path) -> float:
    with served(settings, settings.with_name("log")) as (_, _, seconds):
        return seconds


def idle_mb(node: Node) -> float:
    """Resident memory of a node that has started and done nothing yet."""
    time.sleep(_SETTLING_SECONDS)
    return resident_mb(node.inbox.pid)


def _wall_ms(command: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run([command, "--help"], capture_output=True, check=False)
    taken = (time.perf_counter() - began) * 1000
    if done.returncode != 0:
        raise SubjectMissing(
            f"deedbox --help ends with {done.returncode}: {done.stderr.decode().strip().rpartition(chr(10))[2]}"
        )
    return taken
