"""The README names the two commands that everything starts with, and needs nothing that `./run` does not bring."""

from __future__ import annotations

import re
from importlib.metadata import entry_points

from tests.architecture.sources import texts
from tests.architecture.test_pages import lines

README = "README.md"


def test_the_two_commands_come_first() -> None:
    assert list(lines(README))[:2] == [["./run", "demo"], ["./run", "test"]]


def test_every_line_is_a_command_of_run() -> None:
    assert [words for words in lines(README) if words[0] != "./run"] == []


def test_every_facet_of_this_distribution_is_listed() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ", texts()[README], re.MULTILINE)
    brought = [point.name for point in entry_points(group="deedbox") if point.dist and point.dist.name == "deedbox"]
    assert sorted(listed) == sorted(brought)
