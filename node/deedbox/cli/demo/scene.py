"""The two nodes of the demo: founded, opened and served like any other, and asked through their owners' sockets."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rich_click as click

from deedbox import control, serve
from deedbox.cli.demo.report import Report
from deedbox.cli.init import Founded, found
from deedbox.cli.opening import opened
from deedbox.node import Node
from deedbox.refusals import Refusal

ALPHA, BETA = "alpha.test", "beta.test"


@dataclass
class Player:
    """One node that serves, and its owner's hand on it; ``sent`` are the ids of what it sent."""

    made: Founded
    node: Node
    port: int
    sent: list[str] = field(default_factory=list)

    @property
    def agent(self) -> str:
        return self.node.kernel.agents.home

    async def ask(self, object_key: str, **arguments: Any) -> dict[str, Any]:
        """What the node answers its owner on the socket in its folder; a no is raised."""
        path = control.socket_path(self.made.settings)
        told = await asyncio.to_thread(control.call, path, object_key, arguments)
        if told is None or not told["ok"]:
            told = told or {"error": "no_answer"}
            raise Refusal(str(told["error"]), 500, str(told.get("detail", "")))
        return told

    async def send(self, to: str, kind: str, body: dict[str, Any], **how: Any) -> dict[str, Any]:
        """Send a message and wait for its proven reply; raises ``Refusal`` where none came back."""
        told = await self.ask("SEND", to=to, kind=kind, body=body, **how)
        standing: dict[str, Any] = told["value"]
        self.sent.append(standing["message_id"])
        if not standing["response_verified"]:
            raise Refusal("no_proven_reply", 502, f"{standing['state']}: {standing['detail']}")
        return standing


@dataclass
class Scene:
    """Both players, and what one step leaves for the next."""

    alpha: Player
    beta: Player
    report: Report
    token: str = ""
    spare: str = ""
    spare_fingerprint: str = ""
    receipt: dict[str, Any] = field(default_factory=dict)
    """Alpha's receipt of the run, as beta was given it."""
    kept: dict[str, str] = field(default_factory=dict)
    """The newest signed head of each domain's ledger that the other one was given."""


def founded(folder: Path) -> tuple[Founded, Founded]:
    """Make both nodes; mallory is a second agent of beta's."""
    development = folder / "development"
    alpha = found(ALPHA, folder / ALPHA, development=development)
    beta = found(BETA, folder / BETA, development=development, agents=("node", "mallory"))
    return alpha, beta


@asynccontextmanager
async def playing(alpha: Founded, beta: Founded, report: Report) -> AsyncIterator[Scene]:
    """Serve both nodes while the block lasts."""
    async with AsyncExitStack() as stack:
        one, other = [await _served(stack, each) for each in (alpha, beta)]
        yield Scene(one, other, report)


async def _served(stack: AsyncExitStack, made: Founded) -> Player:
    here = await stack.enter_async_context(opened(made.settings))
    sock, context = stack.enter_context(here.listener())
    await stack.enter_async_context(serve.serving(here.node, sock, context, access_log=False))
    await stack.enter_async_context(control.listening(here.node))
    return Player(made, here.node, sock.getsockname()[1])


async def linger(alpha: Founded, beta: Founded) -> None:
    """Serve both again, say where they are and how their owners get in, and wait to be interrupted."""
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    async with playing(alpha, beta, Report(quiet=True)) as scene:
        for player in (scene.alpha, scene.beta):
            settings = player.made.folder / "deedbox.toml"
            click.echo(f"{player.node.domain}: https://127.0.0.1:{player.port}", err=True)
            click.echo(f"  owner key {player.made.owner_key}", err=True)
            click.echo(f"  deedbox config check --config {settings}", err=True)
        click.echo("both stay until this is interrupted", err=True)
        await stop.wait()
