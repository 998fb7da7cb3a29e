"""Plugins at the terminal: ours, and one installed from a folder of its own, with a command of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM, said

Founding = Callable[..., Path]
OURS = ("basics", "capabilities", "dispatch", "https", "inbox", "wellknown")

PLUGIN = '''
from __future__ import annotations

import click

from deedbox import Facet, Plugin, hookimpl


@click.command()
@click.argument("name")
def greet(name: str) -> None:
    """Say hello."""
    click.echo(f"hello, {name}")


class Greeting(Plugin):
    facet = Facet(name="greeting", summary="Says hello.", obligations=("Is polite.",))

    @staticmethod
    @hookimpl
    def deedbox_commands():
        yield greet
'''


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with an installed distribution that nobody here knows."""
    folder = tmp_path / "site"
    about = folder / "greeting-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "greeting.py").write_text(PLUGIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[deedbox]\ngreeting = greeting:Greeting\n")
    return folder


def run(outside: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(outside), os.environ.get("PYTHONPATH", "")))}
    return subprocess.run(
        [*PROGRAM, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_what_is_installed_and_what_of_it_is_on(found_node: Founding) -> None:
    settings = found_node()
    settings.write_text(settings.read_text().replace("[facets.basics]", "# [facets.basics]"))
    rows = {row["facet"]: row["on"] for row in said("plugins", "list", "--config", str(settings), "--json").value}
    assert set(OURS) <= set(rows)
    assert [name for name in OURS if not rows[name]] == ["basics"]
    assert "deedbox_inbox:Inbox" in said("plugins", "list").out


@pytest.mark.parametrize("name", OURS)
def test_each_of_ours_keeps_the_rules(name: str) -> None:
    ended = said("plugins", "check", name, "--json")
    assert len(ended.value["findings"]) > 4
    assert ended.value["ok"] is True, ended.value["findings"]
    assert ended.status == 0


def test_a_plugin_that_is_not_there() -> None:
    ended = said("plugins", "check", "nothing")
    assert ended.status == 1
    assert "FAIL no facet nothing is installed" in ended.out


def test_an_outside_plugin_is_checked_like_ours(outside: Path, tmp_path: Path) -> None:
    ended = run(outside, tmp_path, "plugins", "check", "greeting", "--json")
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["ok"]) == (0, True), told
    assert told["contributes"] == {"deedbox_commands": 1}


def test_a_command_of_a_subscribed_facet(outside: Path, found_node: Founding) -> None:
    settings = found_node()
    before = run(outside, settings.parent, "greet", "you")
    assert (before.returncode, "No such command" in before.stderr) == (2, True)
    with settings.open("a") as file:
        file.write("[facets.greeting]\n")
    after = run(outside, settings.parent, "greet", "you")
    assert (after.returncode, after.stdout) == (0, "hello, you\n"), after.stderr


def test_a_broken_plugin_is_named(outside: Path, tmp_path: Path) -> None:
    (outside / "greeting.py").write_text("import nothing_of_that_name\n")
    ended = run(outside, tmp_path, "plugins", "check", "greeting")
    assert ended.returncode == 1
    assert "greeting cannot be imported: No module named 'nothing_of_that_name'" in ended.stdout
