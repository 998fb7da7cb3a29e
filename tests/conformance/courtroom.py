"""Our node before the judge: over TLS, by name, with the judge as a peer the node can look up."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deedbox import testing
from deedbox.cli.init import FACETS
from deedbox.testing import RunningNode
from deedbox_conformance import Client, Peer, Probe, Trust
from deedbox_conformance.__main__ import main as judge
from deedbox_wellknown.development import LocalAuthority, LoopbackResolver
from tests.postgres import free_port

NODE, JUDGE = "alpha.test", "judge.test"
CLAUSES = 107
SECONDS = 20
LIMITS = {
    "inbox": {"rate": "6000/min", "unverified": "6000/min"},
    "dispatch": {"shield": "6000/min"},
    "shield": {"address": "60000/min", "failures": "6000/min"},
}
"""One peer asks everything within seconds, so its quota is raised; the counters still run."""


def at_judges_bench(folder: Path, port: int, owner_key: str) -> list[str]:
    """What an operator types who runs the judge on this machine, beside a node that serves on a port."""
    own, authority = free_port(), LocalAuthority(folder / "development/authority")
    LoopbackResolver(folder / "development/names").register(JUDGE, own)
    papers = str(authority.issue(JUDGE))
    secret = folder / "owner.key"
    secret.write_text(owner_key)
    return [
        f"https://{NODE}",
        *("--as", f"agent@{JUDGE}"),
        *("--listen", f"127.0.0.1:{own}"),
        *("--cert", papers),
        *("--key", papers),
        *("--owner-key", str(secret)),
        *("--ca", str(authority.certificate)),
        *("--resolve", f"{NODE}=127.0.0.1:{port}"),
        "--json",
    ]


@asynccontextmanager
async def our_node(folder: Path, **sections: Any) -> AsyncIterator[RunningNode]:
    """A node with every facet; ``sections`` are laid over its settings."""
    facets: dict[str, Any] = {name: {} for name in FACETS}
    sections = {"facets": facets, "limits": LIMITS, "development": folder / "development", **sections}
    async with testing.a_node(folder / NODE, NODE, **sections) as node:
        yield node


async def judged(folder: Path, **sections: Any) -> dict[str, Any]:
    """The judge's report of a node in this process."""
    async with our_node(folder, **sections) as node:
        arguments = at_judges_bench(folder, node.port, node.owner_key)
        with contextlib.redirect_stdout(io.StringIO()) as told:
            status = await asyncio.to_thread(judge, arguments)
    report: dict[str, Any] = json.loads(told.getvalue())
    assert (status == 0) is report["conformant"]
    return report


@asynccontextmanager
async def probing(folder: Path, node: RunningNode) -> AsyncIterator[Probe]:
    """The judge's own hands, as a peer that serves meanwhile."""
    authority, peer = LocalAuthority(folder / "development/authority"), Peer(f"agent@{JUDGE}")
    _, port = await peer.start("127.0.0.1", 0, authority.server_context(JUDGE))
    LoopbackResolver(folder / "development/names").register(JUDGE, port)
    client = Client(Trust(authority.certificate, {NODE: ("127.0.0.1", node.port)}))
    try:
        yield Probe(f"https://{NODE}", client, peer=peer, owner_key=node.owner_key)
    finally:
        await client.close()
        await peer.close()


def faults(report: dict[str, Any]) -> str:
    """What did not pass, a line each."""
    return "\n".join(
        f"{clause['id']} {clause['outcome']}: {clause['title']} {clause['evidence']}"
        for clause in report["clauses"]
        if clause["outcome"] != "pass"
    )
