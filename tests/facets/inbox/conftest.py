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
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """With the inbox alone, and a directory of the vectors' peers."""
    async with a_home(tmp_path / "home") as found:
        yield found


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts one as the test wants it: ``await start(facets={…}, limits={…})``."""
    async with AsyncExitStack() as stack:

        async def started(name: str = "home", **how: Any) -> Home:
            return await stack.enter_async_context(a_home(tmp_path / name, **how))

        yield started
