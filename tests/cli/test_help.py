"""Every command explains itself with an example; listing them imports none; reading ones answer machines."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from deedbox.cli import COMMANDS, main
from tests.cli.conftest import said

WRITES_ITS_OWN_FORM = {"ledger export", "serve", "send"}
"""Lines of JSON already; nothing to answer; its `--json` is tried where it sends."""


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main)
    for name in COMMANDS:
        found = main.get_command(context, name)
        assert found is not None
        yield name, found
        if isinstance(found, click.Group):
            yield from ((f"{name} {inner.name}", inner) for inner in found.commands.values())


ALL = dict(commands())


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_an_example(name: str) -> None:
    ended = said(*name.split(), "--help")
    assert ended.status == 0
    example = re.search(r"(?i)example\b.*?deedbox (\w+)", ended.out, re.DOTALL)
    if name != "conformance":
        assert example is not None, ended.out
        assert example[1] in COMMANDS


def test_the_judge_explains_itself() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from deedbox.cli import main; main(['conformance', '--help'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: deedbox conformance" in ended.stdout
    assert "example" in ended.stdout


@pytest.mark.parametrize("name", [name for name, found in ALL.items() if not isinstance(found, click.Group)])
def test_every_answer_can_be_had_as_json(name: str) -> None:
    options = {option for parameter in ALL[name].params for option in parameter.opts}
    assert "--json" in options or name in WRITES_ITS_OWN_FORM | {"conformance"}


def test_listing_imports_no_command() -> None:
    program = (
        "import sys\nfrom deedbox.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(' '.join(name for name in sys.modules if name.startswith('deedbox.')))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(ended.stdout.splitlines()[-1].split()) == {"deedbox.cli", "deedbox.cli.telling", "deedbox.refusals"}


def test_an_unknown_command_is_a_usage_error() -> None:
    ended = said("nothing-of-that-name")
    assert ended.status == 2
    assert "No such command" in ended.err
