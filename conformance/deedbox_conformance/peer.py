"""The judge as a peer: a domain of its own with agents, discovery document, inbox and ledger, so that a node can look
its sender up.

OIP 1.2 §7 (discovery), §8 (inbox, as the reference's test peer answers it, §13) and §10.3 (the peer's ledger).
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from deedbox_conformance import wire
from deedbox_conformance.listener import Listener, Request, Response
from deedbox_conformance.wire import Envelope, Json, PrivateKey

KeyLookup: TypeAlias = Callable[[str], Awaitable[Mapping[str, Json] | None]]
_LEDGER_PAGE = 25


class Peer:
    """``agent@domain`` and three agents beside it, each with its own key, made anew for every run.

    ``second`` tries what only ``agent`` may do; ``rotating`` changes its key; in the name of ``victim`` forgeries are
    sent, so that no limit on failing senders falls on the others.
    """

    def __init__(self, agent: str) -> None:
        local, _, domain = agent.lower().rpartition("@")
        if not local or not domain:
            raise ValueError(f"{agent!r} is not of the form agent@domain")
        self.domain = domain
        self.agent = f"{local}@{domain}"
        self.second, self.rotating, self.victim = (f"{local}-{role}@{domain}" for role in ("2", "rotating", "victim"))
        agents = (self.agent, self.second, self.rotating, self.victim)
        self._keys = {agent: PrivateKey.generate() for agent in agents}
        self._records: dict[str, dict[str, Json]] = {}
        self._listener = Listener(self.respond)
        self.key_of: KeyLookup = _knows_nobody

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> tuple[str, int]:
        """Serve; without *tls* somebody else must end TLS in front of it. Returns the bound address."""
        return await self._listener.start(host, port, tls)

    async def close(self) -> None:
        await self._listener.close()

    # --- as a sender -----------------------------------------------------------------------------------------

    def key(self, agent: str) -> PrivateKey:
        return self._keys[agent.lower()]

    def rotate(self, agent: str) -> None:
        """Publish another key for *agent* from now on, and sign with it."""
        self._keys[agent] = PrivateKey.generate()

    def hosts(self, agent: Json) -> bool:
        return isinstance(agent, str) and agent.lower() in self._keys

    def record_sent(self, envelope: Envelope, reply: Envelope | None, verified: bool) -> None:
        """Enter a message of ours and what came back (the ledger side of OIP 1.2 §12.1)."""
        answer = reply or {}
        record = _record(envelope, "outbound", "sent")
        record |= {"response_id": answer.get("id"), "response_kind": answer.get("kind")}
        record |= {"response_body_sha256": answer.get("body_sha256"), "response_verified": verified}
        self._records.setdefault(str(envelope["id"]), record)  # sent again, it is answered by a refusal

    def record(self, message_id: str) -> dict[str, Json] | None:
        return self._records.get(message_id)

    # --- as a node -------------------------------------------------------------------------------------------

    async def respond(self, request: Request) -> Response:
        """Answer one HTTP request."""
        match request.method, request.path:
            case "GET", "/.well-known/oip.json":
                return Response.json(self.document(), headers={"cache-control": "public, max-age=300"})
            case "GET", "/oip/ledger":
                return self._ledger(request.query.get("msg"))
            case "GET", "/oip/inbox":
                return Response.json({"endpoint": "oip/inbox", "method": "POST", "protocol": wire.PROTOCOL})
            case "POST", "/oip/inbox":
                return await self._receive(request)
        return Response.json({"error": "not_found"}, 404)

    def document(self) -> Json:
        inbox = f"https://{self.domain}/oip/inbox"
        agents: list[Json] = [
            {"id": agent, "alg": "ES256", "public_key_jwk": key.jwk, "inbox": inbox}
            for agent, key in self._keys.items()
        ]
        return {
            "protocol": wire.PROTOCOL,
            "domain": self.domain,
            "agents": agents,
            "ledger": f"https://{self.domain}/oip/ledger",
            "spec": inbox,
            "transport": "https",
        }

    def _ledger(self, message_id: str | None) -> Response:
        if message_id is None:
            newest = [*reversed(self._records.values())][:_LEDGER_PAGE]
            records: list[Json] = [*newest]
            return Response.json({"ok": True, "node": self.domain, "count": len(records), "records": records})
        record = self._records.get(message_id)
        if record is None:
            return Response.json({"ok": False, "error": "not_found", "msg": message_id}, 404)
        return Response.json({"ok": True, "record": record})

    async def _receive(self, request: Request) -> Response:
        """Verify, enter and acknowledge; this peer runs nothing."""
        if request.too_large:
            return Response.json({"error": "envelope_too_large"}, 413)
        try:
            envelope = wire.parse(request.body)
        except wire.NotCanonical:
            return Response.json({"error": "invalid_json"}, 400)
        if not isinstance(envelope, dict) or envelope.get("protocol") != wire.PROTOCOL:
            return Response.json({"error": "malformed_envelope", "reason": "wrong_protocol"}, 400)
        recipient, sender = envelope.get("to"), envelope.get("from")
        if not self.hosts(recipient) or not isinstance(sender, str):
            return Response.json({"error": "unknown_recipient", "to": recipient}, 404)
        reason = await self._fault(envelope, sender)
        self._records.setdefault(str(envelope.get("id")), _record(envelope, "inbound", reason or "acknowledged"))
        return Response.json(self._reply(envelope, str(recipient), sender, reason))

    async def _fault(self, envelope: Envelope, sender: str) -> str | None:
        key, signature = await self.key_of(sender), envelope.get("signature")
        if key is None:
            return "sender_unverifiable"
        if not isinstance(signature, dict):
            return "missing_signature"
        if envelope.get("body_sha256") != wire.body_hash(envelope):
            return "body_hash_mismatch"
        if not wire.signature_holds(key, wire.preimage(envelope), signature.get("value")):
            return "bad_signature"
        return "no_local_objects" if envelope.get("kind") == "invoke" else None

    def _reply(self, envelope: Envelope, recipient: str, sender: str, reason: str | None) -> Envelope:
        kind = "event" if reason is None else "error"
        body: Json = {"received": True, "kind": envelope.get("kind")} if reason is None else {"reason": reason}
        reply = wire.draft(kind, recipient, sender, body)
        reply |= {"conversation": envelope.get("conversation"), "in_reply_to": envelope.get("id")}
        return wire.signed(reply, self.key(recipient))


async def _knows_nobody(agent: str) -> Mapping[str, Json] | None:
    return None


def _record(envelope: Envelope, direction: str, verdict: str) -> dict[str, Json]:
    kept = {name: envelope.get(name) for name in ("id", "kind", "from", "to", "body_sha256")}
    ts = datetime.now(UTC).isoformat(timespec="seconds")
    return kept | {"ts": ts, "direction": direction, "verdict": verdict}
