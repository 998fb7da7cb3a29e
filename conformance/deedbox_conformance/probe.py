"""The judge's hands: it reads what a node publishes, sends envelopes to it as itself, its peer or a stranger, and
remembers every exchange so that one can feed many clauses.

OIP 1.2 §7 (discovery), §8 (inbox), §12.1 (what a reply must satisfy), §14.5 and §14.12 (mint, revoke).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from deedbox_conformance import wire
from deedbox_conformance.clause import Failed, Finding, NotTestable, expect
from deedbox_conformance.client import Answer, Client, Unreachable
from deedbox_conformance.peer import Peer
from deedbox_conformance.wire import Envelope, Json

T = TypeVar("T")
Scene = Callable[["Probe"], Awaitable[T]]
Sleep = Callable[[float], Awaitable[object]]

_TOKEN = re.compile(r"\bsh\.\d+\.[A-Za-z0-9_.:,-]+")


@dataclass(frozen=True, slots=True)
class Agent:
    """One usable entry of the node's discovery document."""

    id: str
    key: Mapping[str, Json]
    inbox: str
    invokes: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """An envelope sent and the envelope that answered it; ``body`` is the reply's, opened if it was sealed."""

    sent: Envelope
    answer: Answer
    reply: Envelope
    body: dict[str, Json] = field(default_factory=dict)

    @property
    def reason(self) -> Json:
        return self.body.get("reason") if self.reply.get("kind") == "error" else None

    def told(self) -> str:
        """What came, in a few words, for a finding."""
        kind = self.reply.get("kind")
        return f"the answer was {kind}" + (f" {self.reason}" if kind == "error" else "")


@dataclass(frozen=True, slots=True)
class Token:
    """A capability to try things with; ``fingerprint`` is needed to revoke it."""

    text: str
    fingerprint: str

    @classmethod
    def of(cls, text: str) -> Token:
        return cls(text, "cap_" + wire.sha256_hex(text.encode())[:16])  # OIP 1.2 §1.4


class Probe:
    """Everything a check may use. *patience* is the most seconds spent waiting for a rate limit or a cache."""

    def __init__(
        self,
        url: str,
        client: Client,
        *,
        peer: Peer | None = None,
        owner_key: str | None = None,
        token: str | None = None,
        patience: float = 90.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        parts = urlsplit(url if "//" in url else f"https://{url}")
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.domain = (parts.hostname or "").lower()
        self.patience = patience
        self.token = None if token is None else Token.of(token)
        self._client, self._peer, self._owner_key, self._sleep = client, peer, owner_key, sleep
        self._played: dict[Scene[Any], Any] = {}
        if peer is not None:
            peer.key_of = self._key_of

    # --- memory ----------------------------------------------------------------------------------------------

    async def scene(self, play: Scene[T]) -> T:
        """What *play* found; it is played once a run, and its finding is raised again for every clause on it."""
        if play not in self._played:
            try:
                self._played[play] = await play(self)
            except Finding as finding:
                self._played[play] = finding
        found = self._played[play]
        if isinstance(found, Finding):
            raise type(found)(str(found))
        outcome: T = found
        return outcome

    def redacted(self, text: str) -> str:
        """Without the owner's key and without any token."""
        if self._owner_key:
            text = text.replace(self._owner_key, "<owner key>")
        return _TOKEN.sub("<token>", text)

    async def wait(self, seconds: float) -> bool:
        """Sleep, if patience allows that long."""
        if seconds > self.patience:
            return False
        await self._sleep(seconds)
        return True

    # --- plain HTTP ------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        url: str,
        *,
        content: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One exchange; no answer at all means that the clause has failed."""
        try:
            return await self._client.send(method, url, content=content, headers=headers)
        except Unreachable as problem:
            raise Failed(f"no answer: {problem}") from problem

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        return await self.request("GET", self._url(path, query))

    async def as_owner(self, query: Mapping[str, str]) -> Answer:
        """A call of the dispatch door under the owner's key, which travels in a header only (OIP 1.2 §14.6)."""
        if self._owner_key is None:
            raise NotTestable("needs --owner-key to mint or revoke")
        headers = {"x-terminal-key": self._owner_key}
        return await self.request("GET", self._url("/api/dispatch", query), headers=headers)

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self.base}{path}" + (f"?{urlencode(query)}" if query else "")

    # --- the node --------------------------------------------------------------------------------------------

    async def document(self) -> dict[str, Json]:
        """The node's ``/.well-known/oip.json``, without which there is nothing to judge."""
        try:
            answer = await self.scene(read_discovery)
            expect(answer.status == 200, f"HTTP {answer.status}")
            return answer.members()
        except Failed as problem:
            raise NotTestable(f"no discovery document: {problem}") from problem

    async def agents(self) -> list[Agent]:
        """The agents that could be written to, those that run objects first."""
        entries = (await self.document()).get("agents")
        usable = [agent for entry in (entries if isinstance(entries, list) else []) if (agent := _agent(entry))]
        return sorted(usable, key=lambda agent: not agent.invokes)

    async def agent(self) -> Agent:
        agents = await self.agents()
        if not agents:
            raise NotTestable("the discovery document names no agent with id, public_key_jwk and inbox")
        return agents[0]

    async def _key_of(self, agent_id: str) -> Mapping[str, Json] | None:
        return next((agent.key for agent in await self.agents() if agent.id.lower() == agent_id.lower()), None)

    # --- envelopes -------------------------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        if self._peer is None:
            raise NotTestable("needs --as and --listen: the node must be able to look the judge up")
        return self._peer

    @property
    def is_owner(self) -> bool:
        return self._owner_key is not None

    @property
    def has_peer(self) -> bool:
        return self._peer is not None

    def stranger(self) -> str:
        """An agent nobody publishes: of our own domain if we have one, else of one that cannot exist (RFC 6761)."""
        return f"stranger@{self._peer.domain}" if self._peer else "stranger@unpublished.invalid"

    @property
    def sender(self) -> str:
        """Ourselves where the node can look us up, else the stranger."""
        return self._peer.agent if self._peer else self.stranger()

    async def draft(self, kind: str, body: Json, *, sender: str | None = None, **members: Any) -> Envelope:
        """An envelope to the judged agent, not yet signed."""
        return wire.draft(kind, sender or self.sender, (await self.agent()).id, body, **members)

    def sign(self, envelope: Envelope) -> Envelope:
        """With the key of its sender; a stranger's own key is known to nobody."""
        sender = str(envelope["from"])
        known = self._peer is not None and self._peer.hosts(sender)
        return wire.signed(envelope, self.peer.key(sender) if known else wire.PrivateKey.generate())

    async def post(self, envelope: Json | bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Put an envelope, or any bytes, to the inbox; a rate limit is waited out as far as patience goes."""
        content = envelope if isinstance(envelope, bytes) else wire.canonical(envelope)
        fields = {"content-type": "application/json"} | dict(headers or {})
        inbox = (await self.agent()).inbox
        for _ in range(3):
            answer = await self.request("POST", inbox, content=content, headers=fields)
            if answer.status != 429 or not await self.wait(_retry_after(answer)):
                return answer
        return answer

    async def tell(self, envelope: Envelope) -> Exchange:
        """Send an envelope as it is; the answer must be HTTP 200 with an envelope (OIP 1.2 §8.2)."""
        answer = await self.post(envelope)
        if answer.status == 429:
            raise NotTestable("the node limits the rate of messages: raise --patience, or its limit")
        if answer.status != 200:
            raise Failed(f"HTTP {answer.status} {_excerpt(answer)} instead of a signed reply")
        reply = answer.members()
        expect(reply.get("protocol") == wire.PROTOCOL, "HTTP 200, but the answer is no oip-message/1 envelope")
        exchange = Exchange(envelope, answer, reply, self._clear_body(envelope, reply))
        if self._peer is not None and self._peer.hosts(envelope.get("from")):
            self._peer.record_sent(envelope, reply, await self.verifies(reply))
        return exchange

    async def ask(self, kind: str, body: Json, *, sender: str | None = None, **members: Any) -> Exchange:
        """Draft, sign and send."""
        return await self.tell(self.sign(await self.draft(kind, body, sender=sender, **members)))

    async def verifies(self, reply: Envelope) -> bool:
        """Whether a reply bears the signature of the agent it claims to be from."""
        key, signature = await self._key_of(str(reply.get("from"))), reply.get("signature")
        if key is None or not isinstance(signature, dict) or signature.get("alg") != "ES256":
            return False
        return wire.signature_holds(key, wire.preimage(reply), signature.get("value"))

    def _clear_body(self, envelope: Envelope, reply: Envelope) -> dict[str, Json]:
        body = reply.get("body")
        if reply.get("enc") and self._peer is not None and self._peer.hosts(envelope.get("from")):
            try:
                body = wire.opened(reply, self._peer.key(str(envelope["from"])))
            except wire.NotOpened as problem:
                raise Failed(f"the sealed reply does not open with the sender's key: {problem}") from problem
        return body if isinstance(body, dict) else {}


async def read_discovery(probe: Probe) -> Answer:
    """Scene: the discovery document as it came."""
    return await probe.get("/.well-known/oip.json")


def _agent(entry: Json) -> Agent | None:
    if not isinstance(entry, dict):
        return None
    name, key, inbox = entry.get("id"), entry.get("public_key_jwk"), entry.get("inbox")
    if not isinstance(name, str) or not isinstance(key, dict) or not isinstance(inbox, str):
        return None
    return Agent(name, key, inbox, entry.get("invokes") is not False)


def _retry_after(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdigit() else 1.0


def _excerpt(answer: Answer) -> str:
    text = answer.body[:160].decode("utf-8", "replace")
    return " ".join(text.split())
