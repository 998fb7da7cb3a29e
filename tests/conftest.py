"""What every test shares: the folder of specifications, case ids, and a guard that no test leaves this machine."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CASE_ID = re.compile(r"(?:fed|email|mcp|a2a|acp|osz|oip|clasp):[A-Z]?[0-9]+[a-z]?(?:\.[0-9]+)?")

escapes: list[str] = []
"""Addresses outside this machine that the running test tried to reach."""


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The sibling folder with the specification pages and corpora; a test that needs it skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the folder of specifications is not beside this checkout")
    return SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (ROOT / "tests/suites/postgres") in item.path.parents:
            item.add_marker("engines")
        for mark in item.iter_markers("case"):
            malformed = [id_ for id_ in mark.args if not isinstance(id_, str) or not CASE_ID.fullmatch(id_)]
            if malformed or not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: not the id of a case: {malformed}")


def is_here(host: object) -> bool:
    """Whether a host is this machine's loopback, or no host at all."""
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
    if name in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_literal(host: object) -> bool:
    """Whether looking the host up needs no question to anybody: an address already."""
    try:
        ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return is_here(host)
    return True


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: refuses, and remembers, every way out of this machine (PEP 578; table of CPython's events)."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        if isinstance(address, tuple) and not is_here(address[0]):
            refuse(event, address[0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and not is_literal(arguments[0]):
        refuse(event, arguments[0])


def refuse(event: str, host: object) -> None:
    escapes.append(f"{event} {host!r}")
    raise ConnectionRefusedError(f"tests stay on loopback: {event} {host!r}")


sys.addaudithook(watch)


@pytest.fixture(autouse=True)
def _loopback_only() -> Iterator[None]:
    """Fails the test that tried to leave, even where its own code swallowed the refusal."""
    escapes.clear()
    yield
    if escapes:
        pytest.fail(f"left loopback: {', '.join(escapes)}")
