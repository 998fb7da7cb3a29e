"""No ungoverned path: a mounted route writes a receipt for whatever it is asked, or is named as open with a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deedbox.app import routes
from deedbox.facets import installed
from deedbox.govern.open_routes import OPEN_EVERYWHERE, OPEN_ROUTES
from deedbox.testing import FrozenClock, RunningNode, a_node

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
FACETS: dict[str, dict[str, Any]] = {name: {} for name in sorted(installed())}
WELL_KNOWN = "/.well-known"
OPEN = {route.path for route in OPEN_ROUTES}


class Asked(NamedTuple):
    """One request, and where its receipt stands."""

    method: str
    target: str
    body: bytes = b""
    owner: bool = False
    written: str = "event"


GOVERNED = {
    "/oip/inbox": [
        Asked("POST", "/oip/inbox"),
        Asked("POST", "/oip/inbox", b"{}"),
        Asked("POST", "/oip/inbox?x", b"["),
    ],
    "/oip/ledger": [
        Asked("GET", "/oip/ledger"),
        Asked("GET", "/oip/ledger?msg=msg_12345678"),
        Asked("GET", "/oip/ledger?limit=9999"),
        Asked("GET", "/oip/ledger", owner=True),
        Asked("GET", "/oip/ledger?limit=many", owner=True, written="entry"),
    ],
    "/oip/conversation": [Asked("GET", "/oip/conversation"), Asked("GET", "/oip/conversation?id=conv_1")],
    "/api/dispatch": [
        Asked("GET", "/api/dispatch?registry=1"),
        Asked("GET", "/api/dispatch?key=NOW"),
        Asked("GET", "/api/dispatch?key=NOWHERE"),
        Asked("GET", "/api/dispatch?nothing=1"),
        Asked("GET", "/api/dispatch?confirm=inv_12345678"),
        Asked("GET", "/api/dispatch?invoke=NOW"),
        Asked("GET", "/api/dispatch?mint_share=1&scope=read"),
        Asked("GET", "/api/dispatch?tk=x"),
        Asked("GET", "/api/dispatch?invoke=NOW&share=sh.1.x.y"),
        Asked("POST", "/api/dispatch"),
        Asked("POST", "/api/dispatch", b'{"key":"NOW","body":""}'),
        Asked("POST", "/api/dispatch", b'{"key":"NOW","body":""}', owner=True),
        Asked("GET", "/api/dispatch?mint_share=1&scope=row&key=NOW", owner=True, written="entry"),
        Asked("GET", "/api/dispatch?revoke=cap_0123456789abcdef", owner=True, written="entry"),
    ],
}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    """With every facet that is installed."""
    async with a_node(tmp_path, "alpha.example", facets=FACETS, clock=FrozenClock()) as made:
        yield made


def mounted(node: RunningNode) -> set[str]:
    return {path for route in routes(node.node) for path in route.paths}


async def lines(node: RunningNode) -> dict[str, int]:
    """How many entries and events there are, but for those the sealer made."""
    counts = "select (select count(*) from ledger_entry) - (select count(*) from ledger_batch) as entry"
    found = await node.node.database.read(
        lambda reader: reader.all(f"{counts}, (select count(*) from ledger_event) as event")[0]
    )
    return {"entry": found.entry, "event": found.event}


async def ask(node: RunningNode, asked: Asked) -> tuple[int, dict[str, int]]:
    """The answer's status, and what the ledger has more."""
    before = await lines(node)
    send = node.as_owner if asked.owner else node.request
    answer = await send(asked.method, asked.target, asked.body)
    after = await lines(node)
    return answer.status, {where: after[where] - before[where] for where in after}


def test_everything_mounted_is_governed_or_named_as_open() -> None:
    assert all(route.reason for route in OPEN_ROUTES)
    assert len(OPEN) == len(OPEN_ROUTES)
    assert all(OPEN_EVERYWHERE.values())


async def test_the_open_routes_are_those_that_are_mounted(node: RunningNode) -> None:
    known = OPEN | GOVERNED.keys()
    assert mounted(node) - known == set(), "a route nobody spoke of: down the road with it, or into open_routes.py"
    assert known - mounted(node) == set(), "a route that is not there any more"


async def test_an_open_route_takes_nothing_in_and_writes_nothing(node: RunningNode) -> None:
    for path in sorted(OPEN):
        target = f"{path}/oip.json" if path == WELL_KNOWN else path
        status, written = await ask(node, Asked("GET", target))
        assert (path, status, written) == (path, 200, {"entry": 0, "event": 0})
        assert [await status_of(node, method, target) for method in ("PUT", "DELETE")] == [405, 405]


async def status_of(node: RunningNode, method: str, target: str) -> int:
    return (await node.request(method, target)).status


@pytest.mark.parametrize("asked", [*chain(*GOVERNED.values())], ids=lambda one: f"{one.method} {one.target}")
async def test_whatever_a_governed_route_is_asked_is_written_once(node: RunningNode, asked: Asked) -> None:
    _, written = await ask(node, asked)
    assert written == {"entry": int(asked.written == "entry"), "event": int(asked.written == "event")}


async def test_a_method_is_governed_or_refused_or_open_everywhere(node: RunningNode) -> None:
    for path in sorted(mounted(node) - {WELL_KNOWN}):
        for method in METHODS:
            status, written = await ask(node, Asked(method, path))
            if status == 405 or method == "OPTIONS" or (method == "GET" and path in OPEN):
                assert (path, method, written) == (path, method, {"entry": 0, "event": 0})
            elif method != "HEAD":
                assert sum(written.values()) == 1, f"{method} {path} answers {status} and writes {written}"


async def test_what_is_not_there_and_what_is_fetched_ahead_is_only_counted(node: RunningNode) -> None:
    for target in ("/nowhere", "/oip/nowhere", "/.well-known/nowhere"):
        assert await ask(node, Asked("GET", target)) == (404, {"entry": 0, "event": 0})
    before = await lines(node)
    answer = await node.request("GET", "/api/dispatch?registry=1", headers={"sec-purpose": "prefetch"})
    assert (answer.status, await lines(node)) == (204, before)


async def test_a_path_may_be_spelt_otherwise_and_is_governed_all_the_same(node: RunningNode) -> None:
    for target in ("/oip/ledger/", "/oip/%6cedger", "//oip/ledger", "/oip/../oip/ledger", "/OIP/ledger"):
        status, written = await ask(node, Asked("GET", target))
        assert (status, sum(written.values())) in ((404, 0), (200, 1)), target
