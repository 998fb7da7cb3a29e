"""Which settings file a command means, read without loading anything until it is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deedbox.refusals import Fault, Refusal

if TYPE_CHECKING:
    from deedbox.settings import Settings

FILE = "deedbox.toml"
VARIABLE = "DEEDBOX_CONFIG"


def settings_file(given: str | None) -> Path | None:
    """The file that was named, by argument or environment, else ``./deedbox.toml`` if there is one."""
    named = given or os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return Path(FILE) if Path(FILE).is_file() else None


def settings_of(given: str | None) -> Settings:
    """The settings a command works with; refuses ``no_settings`` where there are none."""
    from deedbox.settings import load

    path = settings_file(given)
    if path is None:
        raise Refusal(
            "no_settings",
            500,
            f"there is no {FILE} here",
            next_step="deedbox init DOMAIN writes one; --config FILE names another",
            fault=Fault.OURS,
        )
    return load(path.absolute())
