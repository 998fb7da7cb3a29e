"""One node served by two processes on one PostgreSQL database, and a peer from outside who writes to both.

The peer and the reading of replies are the judge's, which shares no code with the node.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from deedbox_conformance import Client, Peer, Probe, Trust
from deedbox_conformance.clauses.federation import mint
from deedbox_conformance.probe import Exchange, Token
from deedbox_conformance.wire import Envelope, Json
from deedbox_wellknown.development import LocalAuthority, LoopbackResolver
from tests.cli.conftest import PROGRAM, Serving, served
from tests.postgres import free_port

ROOT = Path(__file__).resolve().parents[3]
NODE, PEER = "alpha.test", "agent@judge.test"
ADDED = """
[limits.inbox]
rate = "99999/min"
unverified = "99999/min"
[limits.shield]
address = "99999/min"
failures = "99999/min"
[facets.patience]
"""
ENTRY_POINT = "[deedbox]\npatience = tests.suites.postgres.patience:Patience\n"


@dataclass
class Process:
    """One `deedbox serve` of the node, and the peer's way to it."""

    start: AbstractContextManager[Serving]
    serving: Serving
    probe: Probe
    client: Client
    owner_key: str

    @property
    def pid(self) -> int:
        return self.serving.process.pid

    async def close(self) -> None:
        """Stop it, if it has not been killed."""
        await self.client.close()
        await asyncio.to_thread(self.start.__exit__, None, None, None)

    async def as_owner(self, key: str, **arguments: Any) -> dict[str, Any]:
        """Run an object as the owner."""
        asked = json.dumps({"key": key, "body": json.dumps(arguments)}).encode()
        headers = {"x-terminal-key": self.owner_key, "content-type": "application/json"}
        answer = await self.client.send("POST", f"https://{NODE}/api/dispatch", content=asked, headers=headers)
        assert answer.status == 200, answer.body
        return answer.members()

    async def read(self, target: str) -> dict[str, Any]:
        answer = await self.client.send("GET", f"https://{NODE}{target}")
        assert answer.status == 200, answer.body
        return answer.members()

    async def query(self, **members: Any) -> Envelope:
        """A signed question, not yet sent."""
        return self.probe.sign(await self.probe.draft("query", {"text": "and now?"}, **members))

    async def invoke(self, token: str) -> Envelope:
        """A signed order to run NOW, not yet sent."""
        body: Json = {"key": "NOW", "args": ""}
        return self.probe.sign(await self.probe.draft("invoke", body, capability=token))

    async def tell(self, envelope: Envelope) -> Exchange:
        return await self.probe.tell(envelope)

    async def mint(self, uses: int) -> Token:
        """A capability of the peer's for NOW."""
        return await mint(self.probe, uses=str(uses))


@dataclass
class Pair:
    """What the processes share."""

    folder: Path
    url: str
    owner_key: str
    peer: Peer
    authority: LocalAuthority
    processes: list[Process] = field(default_factory=list)

    @property
    def config(self) -> str:
        return str(self.folder / NODE / "deedbox.toml")

    def rows(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """What the database holds."""
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(sql.encode(), values).fetchall()

    def value(self, sql: str, **values: Any) -> Any:
        (row,) = self.rows(sql, **values)
        (value,) = row.values()
        return value

    async def close(self) -> None:
        """Stop whatever still runs."""
        await asyncio.gather(*(process.close() for process in self.processes))

    async def until(self, sql: str, within: float = 15.0, **values: Any) -> None:
        """Until a question is answered with true."""
        async with asyncio.timeout(within):
            held = self.value(sql, **values)
            while not held:
                await asyncio.sleep(0.02)
                held = self.value(sql, **values)

    def used(self, token: Token) -> int:
        """How often a capability was."""
        asked = "select uses_consumed from capabilities_capability where fingerprint = %(fingerprint)s"
        return int(self.value(asked, fingerprint=token.fingerprint))

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """What the ledger's entries of a kind say, in order."""
        found = self.rows(
            "select p.payload from ledger_entry e join ledger_payload p on p.seq = e.seq"
            " where convert_from(e.header, 'UTF8')::json ->> 'kind' = %(kind)s order by e.seq",
            kind=kind,
        )
        return [json.loads(row["payload"]) for row in found]

    def verified(self) -> dict[str, Any]:
        """The verdict of the node's own command on its ledger, which must be good."""
        told = deedbox("ledger", "verify", "--config", self.config, "--thorough", "--json")
        verdict: dict[str, Any] = json.loads(told)
        assert verdict["first_bad"] is None, verdict
        return verdict


def deedbox(*arguments: str) -> str:
    """What a command of its own process prints."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path, url: str) -> Mapping[str, str]:
    """What the processes are told: the database, and where the facet is that takes its time."""
    installed = folder / "site/patience-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: patience\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(ENTRY_POINT)
    paths = (str(installed.parent), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return {"DEEDBOX_NODE__DATABASE": url, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def found(folder: Path) -> str:
    """Make the node with its schema on the database of the environment; its owner key."""
    shared = ("--development", str(folder / "development"))
    made = json.loads(deedbox("init", NODE, "--folder", str(folder / NODE), *shared, "--json"))
    with Path(made["settings"]).open("a") as settings:
        settings.write(ADDED)
    return str(made["owner_key"])


@asynccontextmanager
async def running(folder: Path, url: str, count: int = 2) -> AsyncIterator[Pair]:
    """The node founded and served by so many processes that share its folder, and the peer beside it."""
    owner_key = await asyncio.to_thread(found, folder)
    authority = LocalAuthority(folder / "development/authority")
    peer, port = Peer(PEER), free_port()
    await peer.start("127.0.0.1", port, authority.server_context(peer.domain))
    LoopbackResolver(folder / "development/names").register(peer.domain, port)
    pair = Pair(folder, url, owner_key, peer, authority)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(peer.close)
        stack.push_async_callback(pair.close)
        await asyncio.gather(*(another(pair, number) for number in range(count)))
        yield pair


async def another(pair: Pair, number: int) -> Process:
    """One more process of the node."""
    folder = pair.folder / f"process-{number}"
    folder.mkdir()
    start = served("--config", pair.config, "--listen", "127.0.0.1:0", folder=folder)
    serving = await asyncio.to_thread(start.__enter__)
    client = Client(Trust(pair.authority.certificate, {NODE: ("127.0.0.1", int(serving.ready.rpartition(":")[2]))}))
    probe = Probe(f"https://{NODE}", client, peer=pair.peer, owner_key=pair.owner_key)
    process = Process(start, serving, probe, client, pair.owner_key)
    pair.processes.append(process)
    return process
