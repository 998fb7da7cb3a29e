"""The demo is a test: every check passes, within its time; and a check that fails is not passed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deedbox.cli.demo.report import Report

PROGRAM = [sys.executable, "-c", "from deedbox.cli import main; main(prog_name='deedbox')", "demo"]
SECONDS = 20
MUST_SHOW = {
    *("signed query delivered", "reply verified", "sealed query, sealed reply", "capability minted and bound"),
    *("capability invoked across domains", "alpha confirms the run", "budget spent", "forwarded token"),
    *("replayed envelope", "another object", "bound token at the door", "stale envelope", "tampered body"),
    *("tampered member", "revocation crosses domains", "ledger of alpha.test verified", "ledger of beta.test verified"),
    *("inclusion proof holds", "ledgers join", "one flipped byte is found"),
}


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [*PROGRAM, *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.case("oip:F0", "oip:F1", "oip:F2", "oip:F3", "oip:F5", "oip:F6", "oip:F7", "oip:F8", "oip:F10")
def test_every_check_passes_in_time(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = run(tmp_path, "--json")
    took = time.monotonic() - began
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-2000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["ok"] is True
    assert {check["name"] for check in told["checks"]} >= MUST_SHOW
    assert [check for check in told["checks"] if check["ok"] is not True or not check["detail"]] == []
    assert took < SECONDS
    assert ended.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_people_see_tables_and_may_keep_both_nodes(tmp_path: Path) -> None:
    ended = run(tmp_path, "--keep")
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-2000:]
    assert "checks passed" in ended.stdout.splitlines()[-1]
    (folder,) = tmp_path.glob("deedbox-demo-*")
    assert str(folder) in ended.stderr
    assert {"alpha.test", "beta.test", "tampered.db"} <= {path.name for path in folder.iterdir()}


async def test_a_step_that_breaks_fails_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    async def broken() -> None:
        raise ValueError("it broke")

    report = Report(quiet=True)
    report.check("one", True)
    assert report.ok
    await report.trying("two", broken())
    report.refused("three", None, "replay_rejected")
    report.finish()
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert [(check["name"], check["ok"]) for check in told["checks"]] == [
        ("one", True),
        ("two", False),
        ("three", False),
    ]


def test_a_demo_that_checked_nothing_has_not_passed() -> None:
    assert not Report(quiet=True).ok
