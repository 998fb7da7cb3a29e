"""Time that stands, and an open store with the kernel's tables on each engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from deedbox.storage.database import Database
from deedbox.storage.migrate import KERNEL, upgrade
from deedbox.testing import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def database(database_url: str, clock: FrozenClock) -> AsyncIterator[Database]:
    await asyncio.to_thread(upgrade, database_url, {"kernel": KERNEL})
    opened = Database(database_url, clock)
    yield opened
    await asyncio.to_thread(opened.close)
