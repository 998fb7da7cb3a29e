"""The lock files pin and hash everything, and name no host: every machine fetches from the index it is set up for."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.architecture.sources import ROOT

LOCKS = ("requirements.lock", "requirements-dev.lock")


def pinned(name: str) -> dict[str, str]:
    """Version by package, extras and markers left out."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_host(name: str) -> None:
    assert "://" not in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_pinned_and_hashed(name: str) -> None:
    requirements = re.split(r"\n(?=\S)", (ROOT / name).read_text(encoding="utf-8").strip())
    assert [each for each in requirements if "==" not in each.split("\n")[0] or "--hash=sha256:" not in each] == []


def test_the_locks_agree() -> None:
    runtime, tools = (pinned(name) for name in LOCKS)
    assert {name: version for name, version in tools.items() if runtime.get(name, version) != version} == {}


def test_every_dependency_is_in_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[\[<>=]", each)[0] for each in project["dependencies"]}
    assert wanted - pinned("requirements.lock").keys() == set()


@pytest.mark.case("fed:E6")
def test_no_token_is_judged_by_a_datalog_engine() -> None:
    assert not any("biscuit" in package for name in LOCKS for package in pinned(name))


@pytest.mark.parametrize("unwanted", ["requests", "pymerkle", "python-jose", "advanced-alchemy", "aiosqlite"])
def test_what_was_looked_at_and_left_stays_out(unwanted: str) -> None:
    assert unwanted not in pinned("requirements.lock")
