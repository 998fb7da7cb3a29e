"""A node with basics, capabilities and the door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deedbox import testing
from deedbox.testing import FrozenClock, RunningNode
from tests.facets import door


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def home(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[RunningNode]:
    """It serves plain HTTP on loopback; time stands still unless ``clock`` is moved."""
    async with testing.a_node(tmp_path / "home", facets=door.FACETS, clock=clock) as node:
        yield node
