"""A node as the vectors know it, at their clock and with their keys, and agents of other domains who write to it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from deedbox import AgentRecord, Directory, Facet, Plugin, Port, Refusal, hookimpl
from deedbox.canonical import digest, unb64url
from deedbox.clock import Ids, SystemClock
from deedbox.envelope.answer import check_reply
from deedbox.envelope.message import Envelope, build
from deedbox.envelope.seal import Opened, open_body, seal_bytes, sign, verify
from deedbox.identity.keys import P256Pair, P256Public
from deedbox.testing import FrozenClock, HttpAnswer, RunningNode, a_node
from deedbox_inbox import Inbox

VECTORS = Path(__file__).resolve().parents[2] / "vectors/oip"
AT = "2026-01-02T03:04:05.678Z"
NODE, ALICE, MALLORY = "node@home.example", "alice@peer.example", "mallory@peer.example"
STRANGER = "nobody@elsewhere.example"
IDS = Ids(SystemClock())
ROOMY: Mapping[str, Any] = {"inbox": {"rate": "9999/min", "unverified": "9999/min"}, "shield": {"address": "99999/min"}}


def vector(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


def pair_of(agent: str) -> P256Pair:
    """The key the vectors give an agent."""
    return P256Pair.from_jwk(vector("keys")["agents"][agent])


# --- who is who --------------------------------------------------------------------------------------------------


@dataclass
class Phonebook:
    """The directory's port, holding what the vectors' domains publish; a test may change it or hold it up."""

    records: dict[str, AgentRecord] = field(default_factory=dict)
    after_refresh: dict[str, AgentRecord] = field(default_factory=dict)
    """What a further fetch would bring."""
    failure: str = "agent_not_published"
    gate: asyncio.Event | None = None
    """If set, nobody is known at once, and resolving waits for it."""
    resolved: int = 0
    refreshed: int = 0

    def known(self, agent: str, now: int) -> AgentRecord | None:
        return None if self.gate else self.records.get(agent)

    async def resolve(self, agent: str, now: int) -> AgentRecord:
        self.resolved += 1
        if self.gate:
            await self.gate.wait()
        if agent in self.records:
            return self.records[agent]
        raise Refusal("sender_unverifiable", 401, "not published", extra={"resolve_failure": self.failure})

    async def refresh(self, agent: str, now: int) -> AgentRecord | None:
        self.refreshed += 1
        return self.after_refresh.get(agent)

    def publish(self, agent: str, pair: P256Pair, **more: Any) -> None:
        self.records[agent] = record(agent, pair, **more)


def record(agent: str, pair: P256Pair, **more: Any) -> AgentRecord:
    return AgentRecord(agent, pair.public, f"https://{agent.partition('@')[2]}/oip/inbox", **more)


def phonebook(*documents: str) -> Phonebook:
    """What the well-known documents among the vectors publish."""
    book = Phonebook()
    for name in documents or ("wellknown-peer",):
        for entry in vector(name)["agents"]:
            key = P256Public.from_jwk(entry["public_key_jwk"])
            book.records[entry["id"]] = AgentRecord(entry["id"], key, entry["inbox"])
    return book


def directory_of(book: Phonebook) -> type[Plugin]:
    """A facet that provides the port and nothing else."""

    class WellKnown(Plugin):
        facet = Facet(name="wellknown", summary="The agents of the vectors.")

        @hookimpl
        def deedbox_ports(self) -> list[Port]:
            return [Port(Directory, book)]

    return WellKnown


# --- writing -----------------------------------------------------------------------------------------------------


def seal(body: Mapping[str, Any], *, to: P256Public | None = None, **binding: Any) -> dict[str, Any]:
    """A sealed block for the node; with ``sender``, ``recipient`` and ``id`` it says for whom."""
    inner = dict(body)
    if binding:
        names = {"sender": "from", "recipient": "to"}
        inner["_oip"] = {names.get(name, name): value for name, value in binding.items()}
    plaintext = orjson.dumps(inner)
    return seal_bytes(plaintext, to or pair_of(NODE).public, ephemeral=P256Pair.generate(), iv=os.urandom(12))


def resigned(members: Mapping[str, Any], pair: P256Pair | None = None, **changes: Any) -> dict[str, Any]:
    """The envelope with other members, hashed and signed again by its sender."""
    changed = {**members, **changes}
    hashed = changed.get("enc") or changed.get("body") or {}
    changed["body_sha256"] = changes.get("body_sha256", digest(hashed))
    return sign(changed, pair or pair_of(changed["from"].lower()), changed["from"])


@dataclass(frozen=True)
class Heard:
    """What came back for an envelope; a reply has been verified before a test sees it."""

    http: HttpAnswer
    members: dict[str, Any]
    sealed: bool = False
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return self.http.status

    @property
    def kind(self) -> str:
        return str(self.members["kind"])

    @property
    def reason(self) -> str | None:
        return self.body.get("reason")

    @property
    def verdict(self) -> tuple[str, int]:
        """The headers that tell what HTTP must not (OIP 1.2 §8.2)."""
        headers = self.http.headers
        return headers["oip-verdict"], int(headers["oip-status"])


@dataclass
class Home:
    """The node, the book it looks senders up in, and the time they share."""

    running: RunningNode
    book: Phonebook
    clock: FrozenClock

    @property
    def key(self) -> P256Public:
        """The newest key of the node's own agent."""
        return self.running.kernel.agents.pair(self.agent, self.clock.now()).public

    @property
    def agent(self) -> str:
        return self.running.kernel.agents.home

    def draft(self, kind: str = "query", body: Any = None, sender: str = ALICE, **more: Any) -> dict[str, Any]:
        """An envelope without a signature."""
        named: dict[str, Any] = {"recipient": self.agent, "conversation": "conv_test", "now": self.clock.now()} | more
        return build(ids=IDS, kind=kind, sender=sender, body=body or {}, **named)

    def letter(
        self, kind: str = "query", body: Any = None, sender: str = ALICE, *, pair: P256Pair | None = None, **more: Any
    ) -> dict[str, Any]:
        """A signed envelope; one with ``enc`` carries that instead of a body."""
        enc = more.pop("enc", None)
        members = self.draft(kind, body, sender, **more)
        if enc is not None:
            members |= {"body": None, "enc": enc, "body_sha256": digest(enc)}
        return sign(members, pair or pair_of(sender.lower()), sender)

    def sealed_letter(
        self, kind: str = "query", body: Any = None, sender: str = ALICE, *, bound: bool = True, **more: Any
    ) -> dict[str, Any]:
        """The same, sealed to the node."""
        capability = more.pop("inner_capability", None)
        message_id = more.pop("id", None) or IDS.new("msg")
        binding: dict[str, Any] = {"sender": sender, "recipient": self.agent, "id": message_id} if bound else {}
        if capability:
            binding["capability"] = capability
        enc = seal(body or {}, **binding)
        return self.letter(kind, None, sender, enc=enc, id=message_id, **more)

    async def post(self, envelope: Any) -> Heard:
        """Send it, and check the reply as its sender would: signature, addresses, hash, times (OIP 1.2 §12.1)."""
        answer = await self.running.post("/oip/inbox", envelope)
        members = answer.json() if answer.body else {}
        if answer.status != 200:
            return Heard(answer, members)
        return self.heard(envelope if isinstance(envelope, dict) else json.loads(envelope), answer, members)

    def heard(self, sent: Mapping[str, Any], answer: HttpAnswer, members: dict[str, Any]) -> Heard:
        now = self.clock.now()
        reply = Envelope.parse(members, now=now)
        verify(reply, self.key, now=now)
        check_reply(
            reply,
            message_id=sent["id"],
            sender=sent["from"].lower(),
            recipient=sent["to"].lower(),
            conversation=sent.get("conversation") or "",
        )
        assert members["to"] == sent["from"]
        assert members["capability"] is None
        if reply.enc is None:
            return Heard(answer, members, body=members["body"])
        assert members["body"] is None
        return Heard(answer, members, sealed=True, body=self.open(members).body)

    def open(self, members: Mapping[str, Any]) -> Opened:
        """What a sealed reply says to whom it is sealed to."""
        to, sender = members["to"], members["from"]
        pair = pair_of(to.lower())
        return open_body(members["enc"], pair, sender=sender, recipient=to, message_id=members["id"])

    async def say(self, *what: Any, **more: Any) -> Heard:
        return await self.post(self.letter(*what, **more))

    # -- what others may read --------------------------------------------------------------------------------------

    async def records(self, msg_id: str) -> list[dict[str, Any]]:
        answer = await self.running.get(f"/oip/ledger?msg={msg_id}")
        assert answer.status in (200, 404)
        found: list[dict[str, Any]] = answer.json()["records"]
        return found

    async def record(self, msg_id: str) -> dict[str, Any]:
        """The one record of a message."""
        (found,) = await self.records(msg_id)
        return found

    async def thread(self, conversation: str = "conv_test") -> dict[str, Any]:
        answer = await self.running.get(f"/oip/conversation?id={conversation}")
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json()["conversation"]
        return found

    async def rows(self, sql: str, **values: Any) -> list[Any]:
        found: list[Any] = await self.running.kernel.database.read(lambda reader: reader.all(sql, **values))
        return found

    async def job(self, kind: str) -> None:
        await self.running.node.jobs[kind].run(self.running.node, {})


# --- the node ----------------------------------------------------------------------------------------------------


def entropy_for(pairs: list[P256Pair]) -> Callable[[int], bytes]:
    """Random bytes, but the first keys that are made are these."""
    scalars = [int.from_bytes(unb64url(str(pair.private_jwk()["d"])), "big") for pair in pairs]

    def entropy(size: int) -> bytes:
        if size == 48 and scalars:  # what a fresh scalar is reduced from: d - 1, to which one is added
            return (scalars.pop(0) - 1).to_bytes(48, "big")
        return os.urandom(size)

    return entropy


@asynccontextmanager
async def a_home(
    folder: Path,
    *,
    domain: str = "home.example",
    agents: tuple[str, ...] = ("node",),
    book: Phonebook | None = None,
    clock: FrozenClock | None = None,
    facets: Mapping[str, Mapping[str, Any]] | None = None,
    plugins: Mapping[str, type[Plugin]] | None = None,
    database: str | None = None,
    node: Mapping[str, Any] | None = None,
    **sections: Any,
) -> AsyncIterator[Home]:
    """A node of the vectors' domain with their key; its ledger is verified when it has stopped."""
    book = book if book is not None else phonebook()
    clock = clock or FrozenClock(AT)
    known = vector("keys")["agents"]
    pairs = [pair_of(f"{name}@{domain}") for name in agents if f"{name}@{domain}" in known]
    has_keys = (folder / "keys").exists()
    section = {"agents": list(agents), **({"database": database} if database else {}), **(node or {})}
    async with a_node(
        folder,
        domain,
        facets={"wellknown": {}, "inbox": {}, **(facets or {})},
        plugins={"wellknown": directory_of(book), "inbox": Inbox, **(plugins or {})},
        clock=clock,
        entropy=entropy_for([] if has_keys else pairs),
        node=section,
        **{"limits": ROOMY, **sections},
    ) as running:
        yield Home(running, book, clock)
