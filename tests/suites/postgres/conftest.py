"""Two processes of one node, started for a module or a test on a database of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests import postgres
from tests.suites.postgres import pair


@asynccontextmanager
async def served_twice(folder: Path) -> AsyncIterator[pair.Pair]:
    """Both serve; whichever has not been killed stops at the end, and then their ledger is verified."""
    with postgres.scratch(os.environ[postgres.VARIABLE]) as url, pytest.MonkeyPatch.context() as patch:
        for name, text in pair.environment(folder, url).items():
            patch.setenv(name, text)
        async with pair.running(folder, url) as started:
            yield started
        started.verified()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[pair.Pair]:
    """For tests that leave both alive."""
    async with served_twice(tmp_path_factory.mktemp("two")) as started:
        yield started


@pytest.fixture
async def mortal(tmp_path: Path) -> AsyncIterator[pair.Pair]:
    """For a test that kills one."""
    async with served_twice(tmp_path) as started:
        yield started
