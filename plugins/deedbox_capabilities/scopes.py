"""What a capability opens, as one string: its grammar, what it allows, and who may hold it up.

Implements OIP 1.2 §14.2 (grammar), §14.3 (scopes), §14.9 (audience).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deedbox import Refusal

KEY = r"[A-Za-z0-9_-]{1,64}"
GRAMMAR = rf"(?:read|act|row:{KEY}|rows:{KEY}(?:,{KEY}){{0,99}}|pfx:{KEY}|pool:[a-z0-9-]{{1,64}}:[a-z0-9-]{{1,32}})"
READING = frozenset({"read", "act"})
"""Scopes that may read documents about others' doings."""

_SCOPE = re.compile(GRAMMAR, re.ASCII)


def is_scope(text: str) -> bool:
    """Whether a text is a scope, which can hold neither a dot nor a space (OIP 1.2 §14.2, §29 W20)."""
    return _SCOPE.fullmatch(text) is not None


def allows(scope: str, key: str) -> bool:
    """Whether a scope opens an object for running. A pool opens nothing here: no facet resolves workspaces."""
    if scope == "act":
        return True
    kind, _, named = scope.partition(":")
    if kind == "row":
        return key == named
    if kind == "rows":
        return key in named.split(",")
    return kind == "pfx" and bool(named) and key.startswith(named)


def scope_of(
    scope: str, *, key: str = "", keys: Sequence[str] = (), prefix: str = "", workspace: str = "", role: str = ""
) -> str:
    """The scope that the terms of a mint stand for (OIP 1.2 §14.5); a word that is none means ``read``.

    Raises :class:`Refusal` ``bad_scope`` for terms no scope can be made of.
    """
    if scope in ("read", "act"):
        return scope
    made = {
        "row": f"row:{key}",
        "rows": f"rows:{','.join(keys) or key}",
        "pfx": f"pfx:{prefix}",
        "pool": f"pool:{workspace}:{role}",
    }.get(scope, scope)
    if ":" not in made:
        return "read"
    if not is_scope(made):
        raise Refusal("bad_scope", 400, "no scope can be made of these terms", next_step="name keys by [A-Za-z0-9_-]")
    return made


def audience_matches(audience: str | None, sender: str) -> bool:
    """Whether a sender is who a capability was made for: that agent, or any of that domain and none below it."""
    if not audience:
        return True
    wanted, found = audience.lower(), sender.lower()
    return found == wanted or ("@" not in wanted and found.rpartition("@")[2] == wanted)
