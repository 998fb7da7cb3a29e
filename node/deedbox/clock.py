"""UTC time and identifiers, both injectable, so that a test can hold the world still.

Instants inside the node are whole milliseconds since 1970-01-01T00:00:00Z. Two printed forms exist on the wire
(OIP 1.2 §1.3): the UTC-Z family with three fractional digits, and the server-law family with a numeric offset.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Protocol

Entropy = Callable[[int], bytes]
"""Returns that many random bytes; ``os.urandom`` unless a test says otherwise."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UTC_Z = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
_SORTED_ALPHABET = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
    b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
)


class Clock(Protocol):
    """Where the node reads the time; one reading a request."""

    def now(self) -> int:
        """Milliseconds since the epoch, UTC."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class Ids:
    """Makes identifiers that sort by time and cannot be guessed: 48 bits of time, then 96 random bits."""

    def __init__(self, clock: Clock, entropy: Entropy = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy

    def new(self, prefix: str, at: int | None = None) -> str:
        """``prefix_`` and 24 characters of ``[A-Za-z0-9_-]``; text order is time order."""
        moment = self._clock.now() if at is None else at
        raw = moment.to_bytes(6, "big") + self._entropy(12)
        return f"{prefix}_{base64.urlsafe_b64encode(raw).translate(_SORTED_ALPHABET).decode()}"

    def secret(self, size: int) -> bytes:
        """Random bytes that are nobody's identifier: salts, nonces, keys."""
        return self._entropy(size)


@lru_cache(maxsize=1024)  # a group's answers share their instant
def utc_z(instant: int) -> str:
    """``2026-01-02T03:04:05.678Z``, the form of envelopes (OIP 1.2 §1.3)."""
    seconds, millis = divmod(instant, 1000)
    moment = time.gmtime(seconds)
    return (
        f"{moment.tm_year:04d}-{moment.tm_mon:02d}-{moment.tm_mday:02d}"
        f"T{moment.tm_hour:02d}:{moment.tm_min:02d}:{moment.tm_sec:02d}.{millis:03d}Z"
    )


def server_law(instant: int, zone: tzinfo = UTC) -> str:
    """``2026-01-02T03:04:05+00:00``, the form of records; numeric offset, no fraction, never ``Z`` (OIP 1.2 §1.3)."""
    moment = datetime.fromtimestamp(instant // 1000, UTC).astimezone(zone)
    return moment.isoformat(timespec="seconds")


def parse_instant(text: object) -> int | None:
    """Milliseconds of an ISO 8601 date and time with a zone, or ``None`` if it is not one (never an exception)."""
    if not isinstance(text, str) or not _UTC_Z.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
