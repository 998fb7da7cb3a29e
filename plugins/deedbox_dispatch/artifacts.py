"""What a result points at: addresses in it, and members that are made to hold one (OIP 1.2 §17.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

NAMES = frozenset(
    {
        *("artifact", "artifacts", "artifact_url", "artifact_urls", "url", "image_url", "download_url"),
        *("file", "path", "r2_key", "href"),
    }
)
BEGINNINGS = ("http://", "https://", "r2:", "file:", "/api/r2/", "/a/", "/api/articles/")
MOST, DEPTH = 50, 5

_URL = re.compile(r"https?://[^\s\"'<>\\]+")


def artifacts_of(result: str) -> list[str]:
    """At most fifty, each once, in the order they are found."""
    found: dict[str, None] = {}
    try:
        value = orjson.loads(result) if result[:1] in ("{", "[") else None
    except orjson.JSONDecodeError:
        value = None
    found.update(dict.fromkeys(_named(value, 0)))
    found.update(dict.fromkeys(each.rstrip("),.;") for each in _URL.findall(result)))
    return list(found)[:MOST]


def _named(value: Any, depth: int, *, wanted: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if wanted and value.startswith(BEGINNINGS):
            yield value
    elif depth > DEPTH:
        return
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _named(inner, depth + 1, wanted=name in NAMES)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner, depth + 1, wanted=wanted)
