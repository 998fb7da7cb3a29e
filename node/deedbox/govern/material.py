"""What a run's result says of itself: whether anything material came out, or only an attempt was made.

Implements OIP 1.2 §16.8 (result strings), §17.3 (material outputs, provider status).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from deedbox.canonical import canonical
from deedbox.intent import Ended, Outcome

_STATUS_NAMES = ("status", "statusCode", "status_code", "httpStatus", "http_status", "code")
_INSIDE = ("body", "response", "result", "data", "payload", "upstream", "output", "output_preview", "output_full")
_COUNTS = ("added", "claims_added", "sources_added", "count")
_HTTP = re.compile(r"HTTP (\d{3})\b:?")
_THREE_DIGITS = re.compile(r"[1-5]\d\d")
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Material:
    """The judgement on one result; ``outputs`` 0 means that nothing but an attempt was made."""

    outputs: int
    provider_status: int | None = None
    provider_failed: bool = False
    skipped: bool = False
    shaped: bool = False
    failed: bool = False

    @property
    def material(self) -> bool:
        return self.outputs > 0

    @property
    def proven(self) -> bool:
        """The wire's ``proof.ok`` (OIP 1.2 §16.11)."""
        return (self.material or self.skipped) and not self.shaped and not self.failed


def result_text(outcome: Outcome) -> str:
    """A run's result as the wire has it: a string; a failure says so in its first letters (OIP 1.2 §16.8)."""
    if outcome.ended is Ended.FAILED:
        return f"ERR:object:{outcome.code}"
    value = outcome.value
    return value if isinstance(value, str) else canonical(value).decode()


def material_of(result: str) -> Material:
    """Judge a result string."""
    shaped = result.startswith("SHAPED:")
    failed = result.startswith(("ERR:", "PROVIDER_ERROR"))
    if shaped or failed:
        return Material(0, shaped=shaped, failed=failed)
    http = _HTTP.match(result)
    if http:
        status = int(http[1])
        rest = result[http.end() :]
        outputs, skipped = (0, False) if status >= 400 else _outputs(rest, _told(rest), provider_failed=False)
        return Material(outputs, status, status >= 400, skipped)
    told = _told(result)
    said = next(_statuses(told, 0), None)
    failing = (said or 0) >= 400 or _says_failed(told, 0)
    outputs, skipped = _outputs(result, told, provider_failed=failing)
    return Material(outputs, said, failing, skipped)


def _outputs(text: str, value: Any, *, provider_failed: bool) -> tuple[int, bool]:
    """How many outputs a text stands for, and whether it says that it was skipped; ``value`` is what it tells."""
    if not isinstance(value, dict):
        return int(bool(text) and not text.startswith("ERR")), False
    if value.get("skipped") is True:
        return 0, True
    leaving = value.get("exit")
    stopped = isinstance(leaving, int | float) and not isinstance(leaving, bool) and leaving != 0
    denied = value.get("ok") is False or value.get("material") is False or value.get("killed_by_timeout") is True
    if stopped or denied or bool(value.get("error")) or provider_failed:
        return 0, False
    counted = sum(_positive(value.get(name)) for name in _COUNTS)
    return max(1, counted + bool(value.get("ok")) + bool(value.get("generated"))), False


def _positive(value: Any) -> int:
    return max(0, int(value)) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _told(value: Any) -> Any:
    """A string that is JSON stands for what it says."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _statuses(value: Any, depth: int) -> Iterator[int]:
    """What providers said, outermost first."""
    if isinstance(value, str):
        http = _HTTP.match(value)
        if http:
            yield int(http[1])
    if not isinstance(value, dict):
        return
    for name in _STATUS_NAMES:
        status = _status(value.get(name))
        if status is not None:
            yield status
    if depth < _DEPTH:
        for name in _INSIDE:
            yield from _statuses(_told(value.get(name)), depth + 1)


def _status(value: Any) -> int | None:
    if isinstance(value, str):
        http = _HTTP.match(value)
        value = int(http[1]) if http else int(value) if _THREE_DIGITS.fullmatch(value) else None
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 100 <= value <= 599 else None


def _says_failed(value: Any, depth: int) -> bool:
    if not isinstance(value, dict):
        return False
    if value.get("error") or value.get("ok") is False:
        return True
    return depth < _DEPTH and any(_says_failed(_told(value.get(name)), depth + 1) for name in _INSIDE)
