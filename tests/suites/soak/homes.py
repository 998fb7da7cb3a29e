"""Real nodes for the soak: founded by `deedbox init`, served by `deedbox serve`, killed without warning."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deedbox.control import NAME as SOCKET
from deedbox_conformance import Client, Peer, Probe, Trust
from deedbox_wellknown.development import LocalAuthority, LoopbackResolver
from tests.postgres import free_port

SITE = Path(__file__).parent / "site"
PROGRAM = (sys.executable, "-m", "deedbox")
READY_WITHIN = 60.0
ENTRY_POINT = "[deedbox]\ncounting = deedbox_counting:Counting\n"
ADDED = """
[limits.inbox]
rate = "999999/min"
unverified = "999999/min"
[limits.shield]
address = "999999/min"
failures = "999999/min"
[facets.counting]
file = "{file}"
first_wait = 500
"""


@dataclass
class Home:
    """A node of its own folder and port; alive between ``start`` and ``kill`` or ``stop``."""

    domain: str
    folder: Path
    port: int
    environment: Mapping[str, str]
    owner_key: str = ""
    process: subprocess.Popen[str] | None = None
    lives: int = 0

    @property
    def config(self) -> Path:
        return self.folder / "deedbox.toml"

    @property
    def socket(self) -> Path:
        return self.folder / SOCKET

    @property
    def rung(self) -> Path:
        """The file of acts outside."""
        return self.folder / "rung"

    def command(self, *arguments: str) -> str:
        """What a command prints, run to its end."""
        done = subprocess.run(
            [*PROGRAM, *arguments], capture_output=True, text=True, check=False, env=self.environment, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def found(self, *options: str) -> None:
        """Make the node, with the facet that counts."""
        made = json.loads(self.command("init", self.domain, "--folder", str(self.folder), *options, "--json"))
        self.owner_key = made["owner_key"]
        with self.config.open("a") as settings:
            settings.write(ADDED.format(file=self.rung))
        self.command("init", "--upgrade", "--folder", str(self.folder))

    def mint(self, key: str, audience: str) -> str:
        """A capability without an end of uses."""
        terms = ("--uses", "0", "--audience", audience)
        told = json.loads(self.command("mint", f"row:{key}", *terms, "--config", str(self.config), "--json"))
        return str(told["value"]["share_token"])

    def start(self) -> None:
        """Begin to serve; ``ready`` says when."""
        command = [*PROGRAM, "serve", "--config", str(self.config), "--listen", f"127.0.0.1:{self.port}"]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment, cwd=self.folder
            )
        self.lives += 1

    async def ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        async with asyncio.timeout(READY_WITHIN):
            line = await asyncio.to_thread(self.process.stdout.readline)
        assert line.startswith("ready: "), (self.folder / "log").read_text()[-3000:]

    async def kill(self) -> None:
        """SIGKILL, by the number of the process that we started."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        assert await self._end(signal.SIGTERM) == 0

    async def _end(self, how: int) -> int:
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(how)
        status = await asyncio.to_thread(process.wait, 60)
        if process.stdout is not None:
            process.stdout.close()
        return status

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """What its database holds; only looked at."""
        database = sqlite3.connect(f"file:{self.folder / 'deedbox.db'}?mode=ro", uri=True, timeout=30)
        database.row_factory = sqlite3.Row
        try:
            return database.execute(sql, values).fetchall()
        finally:
            database.close()

    def verified(self) -> dict[str, Any]:
        """The verdict of the node's own command on its ledger, which must be good."""
        told = self.command("ledger", "verify", "--config", str(self.config), "--thorough", "--json")
        verdict: dict[str, Any] = json.loads(told)
        assert verdict["first_bad"] is None, verdict
        return verdict


@dataclass
class Town:
    """Two nodes that find each other, and a peer who writes to the first."""

    alpha: Home
    beta: Home
    peer: Peer
    client: Client
    probe: Probe
    tokens: dict[str, str] = field(default_factory=dict)


def environment(folder: Path) -> dict[str, str]:
    """What the processes are told, so that they find the facet that counts."""
    installed = folder / "site/counting-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(ENTRY_POINT)
    paths = (str(installed.parent), str(SITE), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@asynccontextmanager
async def a_town(folder: Path, *, beta: bool = True) -> AsyncIterator[Town]:
    """The nodes founded and not yet serving, the peer listening, capabilities minted for whoever will write.

    Without ``beta`` only the peer writes, and there is no second node. Whoever still lives at the end is killed.
    """
    told = environment(folder)
    shared = ("--development", str(folder / "development"))
    alpha, second = (Home(name, folder / name, free_port(), told) for name in ("alpha.test", "beta.test"))
    founded = (alpha, second) if beta else (alpha,)
    await asyncio.gather(*(asyncio.to_thread(home.found, *shared) for home in founded))
    authority = LocalAuthority(folder / "development/authority")
    peer, port = Peer("agent@judge.test"), free_port()
    async with AsyncExitStack() as stack:
        await peer.start("127.0.0.1", port, authority.server_context(peer.domain))
        stack.push_async_callback(peer.close)
        LoopbackResolver(folder / "development/names").register(peer.domain, port)
        client = Client(Trust(authority.certificate, {alpha.domain: ("127.0.0.1", alpha.port)}), timeout=10)
        stack.push_async_callback(client.close)
        probe = Probe(f"https://{alpha.domain}", client, peer=peer, owner_key=alpha.owner_key)
        town = Town(alpha, second, peer, client, probe)
        wanted = [("COUNT", peer.domain), *([("RING", peer.domain), ("COUNT", second.domain)] if beta else [])]
        for key, audience in wanted:
            town.tokens[f"{key} {audience}"] = await asyncio.to_thread(alpha.mint, key, audience)
        try:
            yield town
        finally:
            for home in founded:
                if home.process is not None:
                    await home.kill()
