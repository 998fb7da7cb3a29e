"""One line a request and one a fault, as JSON or for a terminal, with secrets taken out."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

import structlog

_SECRET_NAME = re.compile(
    r"authorization|cookie|token|share|secret|password|passwd|api[-_]?key|terminal[-_]?key|^tk$|private|capability$",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"sh\.\d{9,12}\.[A-Za-z0-9_:,-]+\.(?:\d{1,6}\.)?[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{20,}"
    r"|ok_[A-Za-z0-9_-]{43}"
    r"|(?<=Bearer )[A-Za-z0-9._~+/-]{16,}"
    # A key without its end goes with all that follows: what was cut off is a key too, and looking for an end from each
    # of many beginnings would take quadratic time.
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----|[\s\S]*)"
)
_SECRET_PARAMETERS = frozenset(("share", "tk", "terminal_key", "token", "key", "body"))
GONE = "[redacted]"
QUERY_READ, QUERY_SHOWN = 2_048, 512
"""Bytes, characters."""


def redacted_text(text: str) -> str:
    """Text without anything that looks like a credential (OIP 1.2 §26.1)."""
    return _SECRET_TEXT.sub(GONE, text)


def redacted_query(query: bytes) -> str:
    """The beginning of a query string for the log; a credential goes by its name or its look, however it is encoded."""
    if len(query) > QUERY_READ:
        query = query[:QUERY_READ].rpartition(b"&")[0]
    return "&".join(_redacted_pair(pair.decode("latin-1")) for pair in query.split(b"&"))[:QUERY_SHOWN]


def _redacted_pair(pair: str) -> str:
    name = pair.partition("=")[0]
    plain, meant = unquote(pair), unquote(name).strip().lower()
    if meant in _SECRET_PARAMETERS or _SECRET_NAME.search(meant) or redacted_text(plain) != plain:
        return f"{redacted_text(unquote(name))}={GONE}"
    return pair


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The last processor before printing."""
    for name, value in event.items():
        if _SECRET_NAME.search(name):
            event[name] = GONE
        elif isinstance(value, str):
            event[name] = redacted_text(value)
    return event


def configure(style: str = "json", level: int = logging.INFO) -> None:
    """Set up the process' logging once: ``json`` for machines, ``text`` for a terminal; to standard error."""
    render: Any = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
            exception_formatter=structlog.dev.plain_traceback,  # locals hold secrets
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # the one of that moment
        cache_logger_on_first_use=False,
    )


def logger(**bound: Any) -> Any:
    """A logger that carries names; nobody who forgot to configure logging gets local variables printed."""
    if not structlog.is_configured():
        configure()
    return structlog.get_logger(**bound)
