"""Starts, watches and ends the processes under measurement, through Linux's ``/proc`` (proc(5)) and nothing else.

Where there are two cores the client has one and every server the other, threads included.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parents[2]
CLIENT_CORE, SERVER_CORE = 0, 1
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_SOURCE_ROOTS = ("", "node", "plugins", "wellknown", "conformance")


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, all its threads together (10 ms steps)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def resident_mb(pid: int) -> float:
    """Resident memory now, in MB of 1,000,000 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(f"no resident memory for process {pid}")


def environment() -> dict[str, str]:
    """This process's, with the source roots importable also where the project is not installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in _SOURCE_ROOTS)}


def python(module: str, *arguments: str) -> list[str]:
    """A command that runs one of our modules with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def answer_of(command: Sequence[str], question: bytes = b"", core: int = CLIENT_CORE, seconds: float = 180.0) -> Any:
    """Runs a command to its end and reads the JSON it prints last; raises with its errors where it fails."""
    with running(command, None, core) as process:
        told, errors = process.communicate(question, timeout=seconds)
        if process.returncode != 0:
            raise RuntimeError(f"{command[2]} ended with {process.returncode}: {errors.decode()[-2000:]}")
    return orjson.loads(told.splitlines()[-1])


@contextmanager
def running(command: Sequence[str], log: Path | None, core: int = SERVER_CORE) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of the block; ended by SIGTERM, and by SIGKILL where that takes more than 10 s.

    What it prints to standard error goes to the file ``log``, or to a pipe where that is ``None``.
    """
    errors = subprocess.PIPE if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, env=environment()
    )
    if log is not None:
        os.close(errors)
    try:
        bind(process.pid, core)
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def bind(pid: int, core: int) -> None:
    """Binds a process that has just started to one of our cores, unless we have only one; its threads inherit it."""
    ours = sorted(os.sched_getaffinity(0))
    if len(ours) > 1:
        os.sched_setaffinity(pid, {ours[core]})
