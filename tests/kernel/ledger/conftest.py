"""A ledger with everything in it, and a place to put its database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.ledger.paper import Paper, Witness


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node #1?.db"


@pytest.fixture
def paper() -> Paper:
    """300 entries with events sealed at 61 and 277, signed heads after 100, 256 (cosigned twice) and 300."""
    paper = Paper().fill(60).happen(20)
    paper.seal()
    paper.fill(39).sign()
    paper.fill(156).sign(Witness("w1.example", 1), Witness("w2.example", 2))
    paper.fill(20).happen(5)
    paper.seal()
    paper.fill(23).sign()
    return paper.happen(3)
