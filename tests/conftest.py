"""What every test shares: the folder of specifications, case ids, and a guard that no test leaves this machine."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from deedbox import testing
from tests import loopback, postgres

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


@pytest.fixture
async def a_node(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[testing.RunningNode]]]:
    """Starts nodes that find one another: ``await a_node("beta.test", facets={…}, clock=…)``, as ``testing.a_node``.

    They stop when the test ends, and their ledgers are verified from the first entry.
    """
    async with AsyncExitStack() as stack:

        async def start(domain: str = "alpha.test", **how: Any) -> testing.RunningNode:
            how = {"development": tmp_path / "development"} | how
            return await stack.enter_async_context(testing.a_node(tmp_path / domain, domain, **how))

        yield start


@pytest.fixture
def two_nodes(
    a_node: Callable[..., Awaitable[testing.RunningNode]],
) -> Callable[..., Awaitable[tuple[testing.RunningNode, testing.RunningNode]]]:
    """Starts alpha.test and beta.test with the same facets, clock and settings."""

    async def start(**how: Any) -> tuple[testing.RunningNode, testing.RunningNode]:
        return await a_node("alpha.test", **how), await a_node("beta.test", **how)

    return start


@pytest.fixture(params=["postgresql" if postgres.VARIABLE in os.environ else "sqlite"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database: SQLite, or PostgreSQL under `./run suite postgres`."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'deedbox.db'}"
    else:
        with postgres.scratch(os.environ[postgres.VARIABLE]) as url:
            yield url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (ROOT / "tests/suites/postgres") in item.path.parents or "database_url" in getattr(item, "fixturenames", ()):
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
