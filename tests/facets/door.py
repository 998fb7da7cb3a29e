"""What the tests of objects, capabilities and the door share: a node with the three facets, and the ways to ask it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from deedbox import testing
from deedbox.testing import FrozenClock, HttpAnswer, RunningNode
from deedbox_capabilities import Capabilities
from deedbox_capabilities.tables import CAPABILITIES
from deedbox_capabilities.tokens import NONCE_BYTES, TokenKey

DOOR = "/api/dispatch"
FACETS: Mapping[str, Mapping[str, Any]] = {"basics": {}, "capabilities": {}, "dispatch": {}}
VECTORS = Path(__file__).resolve().parents[1] / "vectors/oip"


def vector(name: str) -> Any:
    """A vector of the specification pages; see the README beside it."""
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


class VectorCapabilities(Capabilities):
    """The facet with the key the vectors were made with."""

    def token_key(self) -> TokenKey:
        return TokenKey(vector("capability-tokens")["secret_utf8"].encode())


def vector_entropy(size: int) -> bytes:
    """The nonce of the vectors; everything else at random."""
    return bytes(range(size)) if size == NONCE_BYTES else os.urandom(size)


@asynccontextmanager
async def as_in_vectors(folder: Path) -> AsyncIterator[tuple[RunningNode, FrozenClock]]:
    """The node the vectors speak of, at their clock; its ledger is verified at the end."""
    clock = FrozenClock(vector("capability-tokens")["clock"])
    async with testing.a_node(
        folder,
        "home.example",
        facets=FACETS,
        plugins={"capabilities": VectorCapabilities},
        clock=clock,
        entropy=vector_entropy,
        node={"zone": "America/Los_Angeles"},
    ) as node:
        yield node, clock


def target(**parameters: Any) -> str:
    return f"{DOOR}?{urlencode(parameters)}"


async def as_owner(node: RunningNode, **parameters: Any) -> HttpAnswer:
    return await node.as_owner("GET", target(**parameters))


async def mint(node: RunningNode, **terms: Any) -> dict[str, Any]:
    """What the owner is told of a new capability: for NOW, unless the terms say otherwise."""
    asked = {"mint_share": 1, "scope": "row", "key": "NOW", **terms}
    answer = await as_owner(node, **{name: text for name, text in asked.items() if text != ""})
    assert answer.status == 200, answer.body
    told: dict[str, Any] = answer.json()
    return told


async def token(node: RunningNode, **terms: Any) -> str:
    return str((await mint(node, **terms))["share_token"])


async def run(node: RunningNode, held: str, key: str = "NOW", body: Any = "", **members: Any) -> HttpAnswer:
    return await node.post(DOOR, {"key": key, "body": body, **members}, {"authorization": f"Bearer {held}"})


async def run_as_owner(node: RunningNode, key: str, body: Any = "", **members: Any) -> HttpAnswer:
    return await node.post(DOOR, {"key": key, "body": body, **members}, {"x-terminal-key": node.owner_key})


async def record(node: RunningNode, fingerprint: str) -> dict[str, Any]:
    """The row of a capability."""
    found = await node.node.database.run(lambda unit: unit.fact(CAPABILITIES, fingerprint))
    assert found is not None
    return dict(found)


async def alter(node: RunningNode, named: str, **changes: Any) -> None:
    """Write into a capability's row what no door would."""
    row = {**await record(node, named), **changes}
    await node.node.database.run(lambda unit: unit.put(CAPABILITIES, row))


async def entries(node: RunningNode) -> list[dict[str, Any]]:
    """The payloads of the ledger, in order."""
    rows = await node.node.database.read(lambda reader: reader.all("select payload from ledger_payload order by seq"))
    return [json.loads(bytes(row.payload)) for row in rows]
