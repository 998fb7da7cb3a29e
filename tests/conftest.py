"""What every test shares: the folder of specifications, case ids, and a guard that no test leaves this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import loopback

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CASE_ID = re.compile(r"(?:fed|email|mcp|a2a|acp|osz|oip|clasp):[A-Z]?[0-9]+[a-z]?(?:\.[0-9]+)?")

loopback.install()


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The sibling folder with the specification pages and corpora; a test that needs it skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the folder of specifications is not beside this checkout")
    return SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (ROOT / "tests/suites/postgres") in item.path.parents:
            item.add_marker("engines")
        for mark in item.iter_markers("case"):
            malformed = [id_ for id_ in mark.args if not isinstance(id_, str) or not CASE_ID.fullmatch(id_)]
            if malformed or not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: not the id of a case: {malformed}")


@pytest.fixture(autouse=True)
def _loopback_only() -> Iterator[None]:
    """Fails the test that tried to leave, even where its own code swallowed the refusal."""
    loopback.escapes.clear()
    yield
    if loopback.escapes:
        pytest.fail(f"left loopback: {', '.join(loopback.escapes)}")
