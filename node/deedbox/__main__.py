"""``python -m deedbox``: the command line."""

from __future__ import annotations

from deedbox.cli import main

if __name__ == "__main__":
    main()
