"""The example documents of the specification."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "oip"


@pytest.fixture
def vectors() -> Callable[[str], Any]:
    """Reads an example by its file name."""
    return lambda name: orjson.loads((VECTORS / name).read_bytes())
