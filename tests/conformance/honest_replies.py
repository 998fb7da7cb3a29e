"""What the test's own node does with a message it believes, and how it answers (OIP 1.2 §8.3 to §8.5, §14, §18.2)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from deedbox_conformance import wire
from deedbox_conformance.client import Client
from deedbox_conformance.listener import Request, Response
from tests.conformance.honest_books import Envelope, Grant, Ledger, Threads

OWNER_KEY = "owner-key-of-the-test"
OBJECTS: dict[str, Callable[[str], str]] = {
    "NOW": lambda _: json.dumps({"now": "2026-11-30T12:05:30+00:00"}),
    "UPPER": str.upper,
}
Gate = tuple[str, int, Callable[[], bool]]
Outcome = tuple[str, dict[str, Any], str]


class Refused(Exception):
    """A no of the protocol: reason, virtual status and ledger verdict."""

    def __init__(self, reason: str, status: int, verdict: str, **members: Any) -> None:
        super().__init__(reason)
        self.reason, self.status, self.verdict, self.members = reason, status, verdict, members


class Answering:
    """One agent, `node@domain`, past the question whether to believe the sender."""

    def __init__(self, domain: str, client: Client, defect: str = "") -> None:
        self.domain, self.agent, self._client, self._defect = domain, f"node@{domain}", client, defect
        self.key, self._other_key = wire.PrivateKey.generate(), wire.PrivateKey.generate()
        self._grants: dict[str, Grant] = {}
        self._invocations: set[str] = set()
        self._ledger, self._threads = Ledger(self.broken), Threads(self.broken)

    def broken(self, defect: str) -> bool:
        return defect == self._defect

    def skips(self, reason: str) -> bool:
        return self.broken(f"skip:{reason}")

    # --- kinds --------------------------------------------------------------------------------------------------

    def _act(self, envelope: Envelope, body: Any, verified: bool) -> Outcome:
        kind, state = envelope["kind"], self._threads.of(envelope)["state"]
        if state == "cancelled" and kind in ("query", "propose", "invoke") and not self.skips("conversation_cancelled"):
            raise Refused("conversation_cancelled", 409, "conversation_cancelled")
        if kind == "query":
            return "result", self._echo(envelope, body, verified), "echoed"
        if kind == "invoke":
            return "result", self._invoke(envelope, body if isinstance(body, dict) else {}), "invoked"
        wrong = {"propose": "results for proposals", "cancel": "results for cancels"}.get(kind, "deaf to notices")
        told = {"received": not self.broken("deaf to notices"), "kind": kind, "note": "received"}
        answer = "result" if self.broken(wrong) and kind in ("propose", "cancel") else "event"
        return answer, told, "acknowledged"

    def _echo(self, envelope: Envelope, body: Any, verified: bool) -> dict[str, Any]:
        ran = {"ran": True, "invocation_id": "inv_obeyed"} if self.broken("obeys text") else {}
        return {
            "agent": self.agent,
            "answered_at": wire.utc_z(wire.now_ms()),
            "echo": {} if self.broken("echoes nothing") else body,
            "invoked": self.broken("says invoked"),
            "retrieved_text_is_data": True,
            "sender_verified": verified,
            "encrypted": bool(envelope.get("enc")),
            "note": "text is data",
            **ran,
        }

    def _invoke(self, envelope: Envelope, body: dict[str, Any]) -> dict[str, Any]:
        key, args, token = body.get("key", ""), body.get("args", ""), envelope.get("capability")
        grant = self._grants.get(token or "", Grant())
        gates: list[Gate] = [
            ("bad_args", 400, lambda: not (isinstance(key, str) and isinstance(args, str))),
            ("capability_required", 401, lambda: not token),
            ("capability_invalid", 401, lambda: token not in self._grants),
            ("audience_binding_required", 403, lambda: bool(token) and not grant.audience),
            ("audience_mismatch", 403, lambda: grant.audience != envelope["from"].lower()),
            ("scope_mismatch", 403, lambda: not grant.allows(key)),
            ("revoked", 401, lambda: grant.revoked),
            ("unknown_object", 404, lambda: key not in OBJECTS),
            ("token_exhausted", 429, lambda: grant.used >= grant.max_uses),
        ]
        for reason, status, bad in gates:
            if not self.skips(reason) and bad():
                raise Refused(reason, status, f"denied:{reason}")
        grant.used += 1
        return self._run(envelope, str(key), str(args), grant)

    def _run(self, envelope: Envelope, key: str, args: str, grant: Grant) -> dict[str, Any]:
        output, invocation = OBJECTS.get(key, str)(args), wire.new_id("inv")
        self._invocations.add(invocation)
        input_sha256 = wire.sha256_hex(wire.canonical({"key": key, "args": args}))
        hashes: dict[str, Any] = {
            "request_body_sha256": envelope["body_sha256"],
            "input_sha256": wire.sha256_hex(args.encode()) if self.broken("hashes bare input") else input_sha256,
            "output_sha256": wire.sha256_hex(output.encode()),
        }
        return {
            "invoked": True,
            "ran": True,
            "ok": True,
            "object": key,
            "agent": self.agent,
            "invocation_id": invocation,
            "confirm": f"https://{self.domain}/api/dispatch?confirm={invocation}",
            "result_preview": output[:400],
            "result": output,
            "cross_ledger": hashes,
            "capability_fingerprint": grant.fingerprint,
            "note": grant.text if self.broken("tells the token") else "ran under a capability",
        }

    # --- replies ------------------------------------------------------------------------------------------------

    def _reply(self, envelope: Envelope, outcome: Outcome, status: int, verified: bool, key: Any) -> Response:
        kind, body, verdict = outcome
        life = 5 if self.broken("short-lived replies") else 300
        reply = wire.draft(kind, self.agent, envelope["from"], body, ttl=life)
        reply |= {"from": envelope["to"], "conversation": envelope.get("conversation"), "in_reply_to": envelope["id"]}
        changes: dict[str, dict[str, Any]] = {
            "answers nothing": {"in_reply_to": None},
            "one id for replies": {"id": "msg_alwaysthesame"},
            "other hashes": {"body_sha256": wire.sha256_hex(b"other")},
        }
        for defect, change in changes.items():
            reply |= change if self.broken(defect) else {}
        if envelope.get("enc") and verified and not self.broken("clear replies"):
            reply = wire.sealed(reply, key)
        unsigned = self.broken("unsigned refusals") and kind == "error"
        reply = wire.signed(reply, self._other_key if unsigned or self.broken("foreign signature") else self.key)
        self._threads.answered(envelope, reply)
        told = reply | {"body": body}
        self._ledger.enter(envelope, told, verdict, status, verified)
        shown = {} if self.broken("no verdicts") else {"oip-verdict": verdict, "oip-status": str(status)}
        return Response.json(reply, headers=shown)

    # --- dispatch -----------------------------------------------------------------------------------------------

    def _dispatch(self, request: Request) -> Response:
        query, owner = request.query, request.headers.get("x-terminal-key") == OWNER_KEY
        if "confirm" in query:
            return self._confirm(query["confirm"])
        if "invoke" in query:
            return self._direct(query["share"])
        if not owner:
            return Response.json({"error": "unauthorized"}, 401)
        if "revoke" in query:
            found = [grant for grant in self._grants.values() if grant.fingerprint == query["revoke"]]
            found[0].revoked = True
            return Response.json({"ok": True, "fingerprint": query["revoke"], "revoked": True})
        scope, uses = query["scope"], query["uses"]
        scope = f"row:{query['key']}" if scope == "row" else scope
        stem = f"sh.{int(time.time()) + int(query['ttl'])}.{scope}.{uses}.{wire.new_id('n', 9)[2:]}"
        grant = Grant(f"{stem}.{wire.b64url(b'm' * 32)}", scope, query.get("aud", "").lower(), int(uses))
        self._grants[grant.text] = grant
        told = {"share_token": grant.text, "fingerprint": grant.fingerprint, "audience": grant.audience or None}
        return Response.json({"ok": True, "scope": scope, **told})

    def _confirm(self, invocation: str) -> Response:
        known = invocation in self._invocations and not self.broken("confirms nothing")
        if known or self.broken("confirms anything"):
            return Response.json({"confirmed": True, "id": invocation})
        return Response.json({"kind": "confirmation", "confirmed": False, "id": invocation}, 404)

    def _direct(self, token: str) -> Response:
        grant = self._grants.get(token, Grant())
        if grant.audience and not self.broken("open door"):
            return Response.json({"error": f"audience_bound:{grant.audience}", "ran": False}, 403)
        return Response.json({"ok": True, "ran": True, "result": OBJECTS["NOW"]("")})
