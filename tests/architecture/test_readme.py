"""The README's shell blocks name only commands that exist, and name the two that everything starts with."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

COMMANDS = runpy.run_path(str(ROOT / "run"), run_name="run")["COMMANDS"]


def shown() -> list[list[str]]:
    """Every command line of the README's `sh` blocks, comments left out."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return [words for block in blocks for line in block.splitlines() if (words := shlex.split(line, comments=True))]


DEEDBOX = sorted({" ".join(words[2:]) for words in shown() if words[:2] == ["./run", "deedbox"]})


def test_the_two_commands_come_first() -> None:
    assert shown()[:2] == [["./run", "demo"], ["./run", "test"]]


def test_every_line_is_a_command_of_run() -> None:
    assert [words for words in shown() if words[0] != "./run" or words[1] not in COMMANDS] == []


@pytest.mark.parametrize("line", DEEDBOX)
def test_every_deedbox_line_is_understood(line: str) -> None:
    command = [sys.executable, "-c", "from deedbox.cli import main; main()", *shlex.split(line), "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert helped.returncode == 0, helped.stderr
