"""Another domain's node as the outbox meets it: real HTTPS on loopback, its own key, answers a test can twist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from deedbox.clock import Clock, Ids
from deedbox.envelope.message import build
from deedbox.envelope.seal import sign
from deedbox.identity.keys import P256Pair
from deedbox_wellknown.development import Development
from tests.kernel.https_peer import Peer, Script, plain, serving
from tests.kernel.https_peer import Request as Request

BETA = "node@beta.test"
INBOX, LEDGER, DOCUMENT = "/oip/inbox", "/oip/ledger?msg=", "/.well-known/oip.json"
Twist = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class Beta:
    """``beta.test``: what it answers at its inbox and in its ledger, and what it was sent."""

    clock: Clock
    peer: Peer
    pair: P256Pair = field(default_factory=P256Pair.generate)
    agents: tuple[str, ...] = (BETA,)

    def __post_init__(self) -> None:
        self.publish()
        self.at_inbox(self.reply())

    # -- what it says --------------------------------------------------------------------------------------------

    def publish(self) -> None:
        agents = [{"id": agent, "alg": "ES256", "public_key_jwk": self.pair.public.jwk} for agent in self.agents]
        document = {
            "protocol": "oip-message/1",
            "domain": "beta.test",
            "agents": [{**agent, "inbox": f"https://beta.test{INBOX}"} for agent in agents],
        }
        self.peer.scripts[DOCUMENT] = plain(orjson.dumps(document))

    def at_inbox(self, *scripts: Script) -> None:
        """One script a message; the last one stays."""
        self.peer.scripts[INBOX] = in_turn(*scripts)

    def in_ledger(self, message_id: str, *scripts: Script) -> None:
        self.peer.scripts[LEDGER + message_id] = in_turn(*scripts)

    def reply(
        self,
        kind: str = "result",
        body: dict[str, Any] | None = None,
        *,
        twist: Twist | None = None,
        pair: P256Pair | None = None,
        **draft: Any,
    ) -> Script:
        """A signed reply to whatever comes; ``draft`` replaces parts of it, ``twist`` works on the signed members."""

        async def answer(writer: asyncio.StreamWriter, request: Request) -> None:
            asked = orjson.loads(request.body)
            now = self.clock.now()
            parts: dict[str, Any] = {
                "ids": Ids(self.clock),
                "kind": kind,
                "sender": asked["to"],
                "recipient": asked["from"],
                "body": None if "enc" in draft else {"ok": True} if body is None else body,
                "conversation": asked["conversation"],
                "in_reply_to": asked["id"],
                "now": now,
            } | draft
            signed = sign(build(**parts), pair or self.pair, parts["sender"])
            await plain(orjson.dumps(twist(signed) if twist else signed))(writer, request)

        return answer

    # -- what it saw ---------------------------------------------------------------------------------------------

    @property
    def received(self) -> list[dict[str, Any]]:
        """The envelopes its inbox was sent."""
        return [orjson.loads(each.body) for each in self.peer.requests if each.target == INBOX]

    @property
    def visits(self) -> list[str]:
        """The order of what was asked of it, documents aside."""
        paths = [each.target for each in self.peer.requests if each.target != DOCUMENT]
        return ["inbox" if path == INBOX else "ledger" for path in paths]


def in_turn(*scripts: Script) -> Script:
    waiting = list(scripts)

    async def answer(writer: asyncio.StreamWriter, request: Request) -> None:
        script = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        await script(writer, request)

    return answer


def status(line: str, body: bytes = b"{}", *headers: str) -> Script:
    return plain(body, *headers, status=line)


@asynccontextmanager
async def a_beta(folder: Path, clock: Clock) -> AsyncIterator[Beta]:
    """Serves until the block ends, findable for nodes that share the development folder."""
    switch = Development("beta.test", folder)
    async with serving(Peer(), switch.authority.server_context("beta.test")) as peer:
        switch.names.register("beta.test", peer.port)
        try:
            yield Beta(clock, peer)
        finally:
            switch.names.withdraw("beta.test")
