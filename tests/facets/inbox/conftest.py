"""The home of the vectors, started for a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.facets.inbox.scene import Home, a_home

Start = Callable[..., Awaitable[Home]]


@pytest.fixture
async def start(tmp_path: Path, database_url: str) -> AsyncIterator[Start]:
    """Starts one as the test wants it: ``await start(facets={…}, limits={…})``; a second needs a name of its own."""
    async with AsyncExitStack() as stack:

        async def started(name: str = "home", **how: Any) -> Home:
            how = {"database": database_url, **how} if name == "home" else how
            return await stack.enter_async_context(a_home(tmp_path / name, **how))

        yield started


@pytest.fixture
async def home(start: Start) -> Home:
    """With the inbox alone, and a directory of the vectors' peers."""
    return await start()
