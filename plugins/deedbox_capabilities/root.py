"""The root secret in its file, from which keys are derived by purpose: made once, readable by us alone, never replaced.

A second process that starts at the same time reads what the first one made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from deedbox import Fault, Refusal
from deedbox.canonical import b64url, unb64url

FILE = "root.secret"
SIZE = 32


def root_secret(folder: Path, entropy: Callable[[int], bytes]) -> bytes:
    """The 32 bytes; raises :class:`Refusal` ``key_file_exposed`` if others have access, ``bad_key`` if damaged."""
    path = folder / FILE
    if not path.exists():
        _make(path, b64url(entropy(SIZE)))
    if path.stat().st_mode & 0o077:
        raise _refusal("key_file_exposed", f"others have access to {FILE}", f"chmod 600 {path}")
    try:
        secret = unb64url(path.read_text().strip())
    except Refusal:
        secret = b""
    if len(secret) != SIZE:
        raise _refusal("bad_key", f"{FILE} does not hold 32 bytes", "restore it from a backup")
    return secret


def _make(path: Path, text: str) -> None:
    """Written whole under another name, then given its own if nobody was quicker."""
    fresh = path.with_name(f".{FILE}.{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(fresh, path)
    except FileExistsError:
        return
    finally:
        fresh.unlink()


def _refusal(code: str, detail: str, next_step: str) -> Refusal:
    return Refusal(code, 500, detail, next_step=next_step, fault=Fault.OURS)
