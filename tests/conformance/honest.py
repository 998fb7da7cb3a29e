"""A small honest node, written from the specification for the judge to be judged by, and its many ways of being wrong.

OIP 1.2 §4 to §11, §14, §16 and §18 as far as the clauses look. `defect` names the one way in which this node is wrong;
`skip:<reason>` means that it never makes the check of that name.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from deedbox_conformance import wire
from deedbox_conformance.client import Client, Unreachable
from deedbox_conformance.listener import Listener, Request, Response
from tests.conformance.honest_books import Envelope
from tests.conformance.honest_replies import Answering, Refused

LIMIT = 131_072
NEIGHBOUR = "judge.test"
LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
DOMAIN = re.compile(rf"(?:{LABEL}\.)+[a-z][a-z0-9-]*", re.IGNORECASE)


def _agent(text: Any) -> bool:
    local, at, domain = text.rpartition("@") if isinstance(text, str) else ("", "", "")
    return bool(at) and bool(re.fullmatch(r"[A-Za-z0-9._+-]{1,64}", local)) and bool(DOMAIN.fullmatch(domain))


def _lived(envelope: Envelope, since: str) -> float:
    start = wire.instant_of(envelope[since]) if since else wire.now_ms()
    return ((wire.instant_of(envelope["expires_at"]) or 0) - (start or 0)) / 1000


def _content(envelope: Envelope) -> bytes:
    return wire.canonical(envelope.get("enc") or ({} if envelope.get("body") is None else envelope["body"]))


SHAPE: list[tuple[str, Callable[[Any], bool]]] = [
    ("not_an_object", lambda e: not isinstance(e, dict)),
    ("wrong_protocol", lambda e: e.get("protocol") != "oip-message/1"),
    ("bad_id", lambda e: not re.fullmatch(r"msg_[A-Za-z0-9_-]{8,}", str(e.get("id")))),
    ("bad_kind", lambda e: e.get("kind") not in wire.KINDS),
    ("bad_from", lambda e: not _agent(e.get("from"))),
    ("bad_to", lambda e: not _agent(e.get("to"))),
    ("missing_times", lambda e: not (e.get("created_at") and e.get("expires_at"))),
    ("missing_body_hash", lambda e: not isinstance(e.get("body_sha256"), str)),
    ("body_too_large", lambda e: len(_content(e)) > 65_536),
    ("bad_times", lambda e: None in (wire.instant_of(e["created_at"]), wire.instant_of(e["expires_at"]))),
    ("ttl_too_long", lambda e: _lived(e, "created_at") > 905),
    ("created_in_future", lambda e: (wire.instant_of(e["created_at"]) or 0) > wire.now_ms() + 120_000),
    ("conversation_too_long", lambda e: len(str(e.get("conversation"))) > 200),
    ("capability_too_long", lambda e: len(str(e.get("capability"))) > 2048),
]


class HonestNode(Answering):
    """The doors of the node, and what must be true before it acts."""

    def __init__(self, domain: str, client: Client, defect: str = "") -> None:
        super().__init__(domain, client, defect)
        self._seen: set[tuple[str, str]] = set()
        self._requests = 0
        self._blocks: dict[str, str] = {}
        self._documents: dict[str, dict[str, Any]] = {}
        self.listener = Listener(self.respond)

    # --- doors ------------------------------------------------------------------------------------------------

    async def respond(self, request: Request) -> Response:
        try:
            response = await self._route(request)
        except Exception:
            if not self._defect:
                raise
            response = Response.json({"error": "internal"}, 500)
        if self.broken("no CORS"):
            kept = {name: value for name, value in response.headers.items() if "allow-origin" not in name}
            return Response(response.status, response.body, kept)
        return response

    async def _route(self, request: Request) -> Response:
        match request.method, request.path:
            case "GET", "/.well-known/oip.json":
                return self._published()
            case "GET", "/oip/inbox":
                kinds: list[Any] = list(wire.KINDS[:6] if self.broken("six kinds") else wire.KINDS)
                described: dict[str, Any] = {"protocol": wire.PROTOCOL, "method": "POST", "envelope": {"kinds": kinds}}
                return Response.json({**described, "agent": self.agent})
            case "OPTIONS", "/oip/inbox" if not self.broken("no preflight"):
                allow = {"methods": "GET, POST, OPTIONS", "headers": "*", "origin": "*"}
                return Response(204, b"", {f"access-control-allow-{name}": value for name, value in allow.items()})
            case "POST", "/oip/inbox":
                return await self._receive(request)
            case "GET", "/oip/ledger":
                limit = int(request.query.get("limit", "25"))
                return Response.json(self._ledger.page(request.query.get("msg"), limit))
            case "GET", "/oip/conversation":
                return self._conversation(request)
            case "GET", "/api/dispatch":
                return self._dispatch(request)
        return Response.json({"error": "not_found"}, 404)

    def _published(self) -> Response:
        inbox = f"https://{self.domain}/oip/inbox"
        agent: dict[str, Any] = {"id": self.agent, "alg": "ES256", "public_key_jwk": self.key.jwk, "inbox": inbox}
        ring_key = self._other_key.jwk if self.broken("stale ring") else self.key.jwk
        ring: list[Any] = [{"not_before": "2026-01-01T00:00:00.000Z", "public_key_jwk": ring_key}]
        claims = {"invokes": False} if self.broken("claims nothing") else {"invokes": True, "keys": ring}
        agent |= claims
        agents = [agent]
        if self.broken("publishes its private key"):
            agent["public_key_jwk"] = agent["public_key_jwk"] | {"d": "AAAA"}
        if self.broken("half an agent"):
            agents.append({"id": f"half@{self.domain}", "inbox": inbox})
        if self.broken("inbox elsewhere"):
            agents.append(agent | {"id": f"far@{self.domain}", "inbox": "https://elsewhere.test/oip/inbox"})
        document: dict[str, Any] = {
            "protocol": "oip-message/2" if self.broken("wrong protocol published") else wire.PROTOCOL,
            "domain": "another.test" if self.broken("another domain") else self.domain,
            "agents": agents,
            "ledger": f"https://{self.domain}/oip/{'nowhere' if self.broken('dead link') else 'ledger'}",
            "spec": inbox,
            "note": "x" * (300_000 if self.broken("huge document") else 0),
        }
        caching = {} if self.broken("no caching") else {"cache-control": "public, max-age=300", "etag": '"1"'}
        return Response.json(document, headers=caching)

    def _conversation(self, request: Request) -> Response:
        name = request.query.get("id")
        if name is None:
            page: list[Any] = list(self._threads.page(int(request.query.get("limit", "25"))))
            return Response.json({"ok": True, "protocol": wire.PROTOCOL, "count": len(page), "conversations": page})
        thread = self._threads.document(name)
        if thread is None and not self.broken("knows every thread"):
            return Response.json({"ok": False, "error": "conversation_not_found", "id": name}, 404)
        return Response.json({"ok": True, "protocol": wire.PROTOCOL, "conversation": thread})

    # --- the inbox ----------------------------------------------------------------------------------------------

    async def _receive(self, request: Request) -> Response:
        self._requests += 1
        if self.broken("limits always") or (self.broken("limits once") and self._requests == 1):
            return Response.json({"error": "rate_limited"}, 429, {"retry-after": "7"})
        if request.too_large:
            if self.broken("400 for too long") or (
                self.broken("400 for chunks") and "content-length" not in request.headers
            ):
                return Response.json({"error": "invalid_json"}, 400)
            return Response.json({"error": "envelope_too_large", "limit": LIMIT}, 413)
        if "content-encoding" in request.headers and not self.broken("ignores codings"):
            return Response.json({"error": "unsupported_content_encoding"}, 415)
        try:
            envelope = self._parsed(request.body)
        except ValueError as problem:
            return Response.json(json.loads(str(problem)), 400)
        if reason := self._shape_fault(envelope):
            return Response.json({"error": "malformed_envelope", "reason": reason}, 400)
        if envelope["to"].lower() != self.agent and not self.skips("unknown_recipient"):
            if self.broken("enters the misaddressed"):
                self._ledger.enter(envelope, {"id": "", "body_sha256": ""}, "unknown_recipient", 404, False)
            return Response.json({"error": "unknown_recipient", "to": envelope["to"], "expected": self.agent}, 404)
        return await self._process(envelope)

    def _parsed(self, text: bytes) -> Any:
        try:
            return json.loads(text) if self.broken("lenient JSON") else wire.parse(text)
        except ValueError as problem:
            if self.broken("500 for odd text"):
                raise RuntimeError("boom") from problem
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                error = "bad_request" if self.broken("nameless JSON error") else "invalid_json"
                raise ValueError(json.dumps({"error": error})) from problem
            refusal = {"error": "malformed_envelope", "reason": "non_canonical_json"}
            raise ValueError(json.dumps(refusal)) from problem

    def _shape_fault(self, envelope: Any) -> str | None:
        rows = SHAPE[:1] + SHAPE[:0:-1] if self.broken("last fault first") else SHAPE
        if self.broken("any domain"):
            rows = [row for row in rows if row[0] != "bad_from"]
        return next((reason for reason, bad in rows if not self.skips(reason) and bad(envelope)), None)

    async def _process(self, envelope: Envelope) -> Response:
        verified, key = False, None
        try:
            verified, key = await self._believe(envelope)
            body = self._open(envelope, verified)
            self._threads.received(envelope, body)
            return self._reply(envelope, self._act(envelope, body, verified), 200, verified, key)
        except Refused as no:
            ran = {"invoked": False, "ran": False} if envelope["kind"] == "invoke" else {}
            told = {"reason": no.reason, "note": "refused", **ran, **no.members}
            return self._reply(envelope, ("error", told, no.verdict), no.status, verified, key)

    async def _believe(self, envelope: Envelope) -> tuple[bool, Any]:
        """Whether the sender is verified, and its key; a repeat or a false signature is refused."""
        if self.broken("forgeries spend ids"):
            await self._spend(envelope)
        key, failure = await self._resolve(envelope["from"])
        verified = key is not None
        if key is None:
            only_queries = envelope["kind"] != "query" or self.broken("refuses strangers")
            if only_queries and not self.skips("sender_unverifiable"):
                verdict = "rejected:sender_unverifiable"
                raise Refused("sender_unverifiable", 401, verdict, resolve_failure=failure)
        elif reason := await self._signature_fault(envelope, key):
            raise Refused(reason, 401, f"rejected:{reason}")
        if not self.broken("forgeries spend ids"):
            await self._spend(envelope)
        return verified, key

    async def _spend(self, envelope: Envelope) -> None:
        sender = "" if self.broken("one id for all") else envelope["from"].lower()
        claim = (sender, envelope["id"])
        spent = claim in self._seen
        if self.broken("looks, then inserts"):
            await asyncio.sleep(0.15)
        self._seen.add(claim)
        if spent and not self.skips("replay_rejected"):
            raise Refused("replay_rejected", 409, "replay_rejected")

    async def _resolve(self, agent: str, *, again: bool = False) -> tuple[Any, str | None]:
        domain = agent.rpartition("@")[2].lower()
        if self.broken("looks nobody up"):
            return None, "agent_not_published"
        if domain != NEIGHBOUR:
            return None, "well_known_unreachable:no such name"
        if again or domain not in self._documents:
            try:
                answer = await self._client.send("GET", f"https://{domain}/.well-known/oip.json")
                self._documents[domain] = json.loads(answer.body)
            except Unreachable as problem:
                return None, f"well_known_unreachable:{str(problem)[:80]}"
        wanted = agent if self.broken("case matters") else agent.lower()
        found = [entry for entry in self._documents[domain]["agents"] if entry["id"] == wanted]
        return (found[0]["public_key_jwk"], None) if found else (None, "agent_not_published")

    async def _signature_fault(self, envelope: Envelope, key: Any) -> str | None:
        signature = envelope.get("signature") or {}
        checks: list[tuple[str, Callable[[], bool]]] = [
            ("expired_envelope", lambda: _lived(envelope, "") <= 0),
            ("body_hash_mismatch", lambda: self._hash(envelope) != envelope["body_sha256"]),
            ("missing_signature", lambda: not (signature.get("alg") == "ES256" and signature.get("value"))),
            ("key_not_of_sender", lambda: str(signature.get("kid")).lower() != envelope["from"].lower()),
        ]
        if self.broken("signature first"):
            checks.insert(0, ("bad_signature", lambda: not self._holds(envelope, key, signature)))
        for reason, bad in checks:
            if not self.skips(reason) and bad():
                return reason
        if self._holds(envelope, key, signature) or self.skips("bad_signature"):
            return None
        newer = None if self.broken("never refetches") else (await self._resolve(envelope["from"], again=True))[0]
        return None if newer and self._holds(envelope, newer, signature) else "bad_signature"

    def _hash(self, envelope: Envelope) -> str:
        if not self.broken("sorts by code point"):
            return wire.body_hash(envelope)
        body = envelope.get("enc") or envelope.get("body") or {}
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return wire.sha256_hex(text.encode())

    def _holds(self, envelope: Envelope, key: Any, signature: Any) -> bool:
        value, preimage = signature.get("value", ""), wire.preimage(envelope)
        if self.broken("signs known members only"):
            unknown = ("capability", "priority", "signature")
            preimage = wire.canonical({**{k: v for k, v in envelope.items() if k not in unknown}, "capability": None})
        if self.broken("order matters"):
            bare = {name: member for name, member in envelope.items() if name != "signature"}
            preimage = json.dumps(bare, separators=(",", ":"), ensure_ascii=False).encode()
        raw = wire.unb64url(value)
        if self.broken("accepts DER") and len(raw) != 64:
            try:
                wire.public_key(key).verify(raw, preimage, ec.ECDSA(hashes.SHA256()))
            except InvalidSignature:
                return False
            return True
        if self.broken("refuses high s") and int.from_bytes(raw[32:]) > wire.P256_ORDER // 2:
            return False
        return wire.signature_holds(key, preimage, value)

    def _open(self, envelope: Envelope, verified: bool) -> Any:
        if not envelope.get("enc"):
            return envelope.get("body")
        if not verified and not self.broken("opens for anybody"):
            raise Refused("sender_unverifiable", 401, "rejected:sender_unverifiable")
        digest, sender = wire.sha256_hex(wire.canonical(envelope["enc"])), envelope["from"].lower()
        if self._blocks.setdefault(digest, sender) != sender and not self.skips("decrypt_refused"):
            raise Refused("decrypt_refused", 400, "decrypt_refused")
        try:
            if self.broken("opens nothing"):
                raise wire.NotOpened
            body: Any = wire.opened(envelope, self.key)
        except wire.NotOpened:
            if self.skips("decrypt_failed"):
                return {}
            raise Refused("decrypt_failed", 400, "decrypt_failed") from None
        inner = body.get("_oip", {}) if isinstance(body, dict) else {}
        if any(envelope[name] != value for name, value in inner.items()) and not self.skips("_oip"):
            raise Refused("decrypt_refused", 400, "decrypt_refused")
        return body
