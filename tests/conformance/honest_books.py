"""The books of the test's own node: capability records, ledger and threads (OIP 1.2 §10, §11, §14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deedbox_conformance import wire

Envelope = dict[str, Any]
Broken = Callable[[str], bool]

ALL_KINDS = list(wire.KINDS)
NEXT_KINDS: dict[str, list[str]] = {
    "open": ALL_KINDS,
    "proposed": ["accept", "reject", "query", "invoke", "cancel", "error"],
    "closed": ["query", "propose", "invoke"],
    "cancelled": [],
}


@dataclass
class Grant:
    """The record of a token."""

    text: str = ""
    scope: str = "act"
    audience: str = ""
    max_uses: int = 1
    used: int = 0
    revoked: bool = False

    @property
    def fingerprint(self) -> str:
        return "cap_" + wire.sha256_hex(self.text.encode())[:16]

    def allows(self, key: str) -> bool:
        return self.scope in ("act", f"row:{key}")


@dataclass
class Ledger:
    """Newest first, as it is shown."""

    broken: Broken
    records: list[dict[str, Any]] = field(default_factory=list)

    def enter(self, message: Envelope, reply: Envelope, verdict: str, status: int, verified: bool) -> None:
        if self.broken("hides refusals") and status >= 400:
            return
        record = {
            "ts": "2026-11-30T12:05:30+00:00",
            "kind": "FED_INBOX",
            "verdict": verdict,
            "direction": "inbound",
            "status": status,
            "msg_id": message.get("id"),
            "from": message.get("from"),
            "to": message.get("to"),
            "body_sha256": message.get("body_sha256"),
            "sender_verified": verified,
            "response_id": reply["id"],
            "response_body_sha256": reply["body_sha256"],
            "invocation_id": (reply.get("body") or {}).get("invocation_id"),
            "reason": None,
        }
        changes: dict[str, dict[str, Any]] = {
            "forgets answers": {"response_body_sha256": None},
            "local time": {"ts": "2026-11-30T12:05:30.000Z"},
            "shows bodies": {"body": message.get("body")},
            "own hashes": {"body_sha256": wire.sha256_hex(b"own")},
        }
        for defect, change in changes.items():
            record |= change if self.broken(defect) else {}
        self.records.insert(0, record)

    def page(self, msg: str | None, limit: int) -> dict[str, Any]:
        if msg is None:
            shown = self.records if self.broken("ignores limit") else self.records[:limit]
            return {"ok": True, "node": "test", "count": len(shown), "records": shown}
        found = [record for record in self.records if record["msg_id"] == msg][:5]
        single = {} if self.broken("one shape") or not found else {"record": found[0]}
        return {"ok": True, "node": "test", "msg": msg, "records": found, **single}


class Threads:
    """Every thread by (other agent, conversation id), so that a third party has one of its own."""

    def __init__(self, broken: Broken) -> None:
        self._broken = broken
        self._threads: dict[tuple[str, str], dict[str, Any]] = {}

    def of(self, message: Envelope) -> dict[str, Any]:
        conversation = str(message.get("conversation"))
        owner = "" if self._broken("anybody cancels") else str(message["from"]).lower()
        fresh = {
            "id": conversation,
            "participants": [message["from"], message["to"]],
            "state": "open",
            "messages": [],
            "open_commitments": [],
            "unresolved_requests": [],
        }
        return self._threads.setdefault((owner, conversation), fresh)

    def received(self, message: Envelope, body: Any) -> None:
        thread = self.of(message)
        self._note(thread, message, "inbound")
        match message["kind"]:
            case "cancel" if not self._broken("cancels nothing"):
                thread |= {"state": "cancelled", "open_commitments": [], "unresolved_requests": []}
            case "query" | "invoke":
                thread["unresolved_requests"].append({"msg_id": message["id"]})
                thread["state"] = "open" if thread["state"] == "closed" else thread["state"]
            case "propose":
                summary = body.get("summary") if isinstance(body, dict) else None
                thread["open_commitments"].append({"msg_id": message["id"], "summary": summary})
                thread["state"] = "open" if self._broken("forgets proposals") else "proposed"

    def answered(self, message: Envelope, reply: Envelope) -> None:
        thread = self.of(message)
        if not self._broken("one-sided threads"):
            self._note(thread, reply, "outbound")
        waiting = [entry for entry in thread["unresolved_requests"] if entry["msg_id"] != message["id"]]
        thread["unresolved_requests"] = waiting
        idle = not waiting and not thread["open_commitments"] and thread["state"] != "cancelled"
        if idle and not self._broken("never closes"):
            thread["state"] = "closed"

    def _note(self, thread: dict[str, Any], message: Envelope, direction: str) -> None:
        kept = {name: message.get(name) for name in ("kind", "from", "to", "in_reply_to", "body_sha256")}
        thread["messages"].append({"msg_id": message["id"], "direction": direction, **kept})

    def document(self, conversation: str) -> dict[str, Any] | None:
        found = [thread for (_, name), thread in self._threads.items() if name == conversation]
        return None if not found else found[0] | {"allowed_next_kinds": NEXT_KINDS[found[0]["state"]]}

    def page(self, limit: int) -> Sequence[dict[str, Any]]:
        shown = ["id", "state"] + (["participants"] if self._broken("lists participants") else [])
        newest = list(self._threads.values())[::-1][:limit]
        return [{name: one[name] for name in shown} | {"messages": len(one["messages"])} for one in newest]
