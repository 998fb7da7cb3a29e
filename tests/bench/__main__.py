"""Lets ``python -m tests.bench`` do what ``./run bench`` does."""

from __future__ import annotations

import sys

from tests.bench.run import main

if __name__ == "__main__":
    sys.exit(main())
