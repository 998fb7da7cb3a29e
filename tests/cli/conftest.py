"""Runs commands as they are run: in this process for their answers, in one of their own where they serve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from deedbox.cli import main

PROGRAM = [sys.executable, "-c", "from deedbox.cli import main; main(prog_name='deedbox')"]
READY_WITHIN = 30


@dataclass(frozen=True)
class Said:
    """What a command said and how it ended."""

    status: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)


def said(*arguments: str, given: str | None = None) -> Said:
    """Run a command in this process; what it did not mean to raise is raised."""
    with _logging_as_it_was():
        ended: Result = CliRunner().invoke(main, list(arguments), input=given, prog_name="deedbox")
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Said(ended.exit_code, ended.stdout, ended.stderr)


@contextmanager
def _logging_as_it_was() -> Iterator[None]:
    """A command sets logging up for its process, which here is that of all tests."""
    configured, before = structlog.is_configured(), structlog.get_config()
    try:
        yield
    finally:
        structlog.reset_defaults()
        if configured:
            structlog.configure(**before)


@dataclass
class Serving:
    """A `deedbox serve` of its own."""

    process: subprocess.Popen[str]
    ready: str

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(READY_WITHIN)


@contextmanager
def served(*arguments: str, folder: Path) -> Iterator[Serving]:
    """Start `deedbox serve` and wait until it says that it is ready."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (folder / "serve.err").open("w") as errors:
        process = subprocess.Popen(
            [*PROGRAM, "serve", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().strip()
        assert ready.startswith("ready: "), (folder / "serve.err").read_text()
        yield Serving(process, ready)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(READY_WITHIN)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def found_node(tmp_path: Path) -> Callable[..., Path]:
    """Founds a node by `deedbox init`; the path of its settings file."""

    def found(domain: str = "alpha.test", *options: str) -> Path:
        folder = tmp_path / domain
        shared = ("--development", str(tmp_path / "development"), *options)
        ended = said("init", domain, "--folder", str(folder), *shared)
        assert ended.status == 0, ended.err
        return folder / "deedbox.toml"

    return found
