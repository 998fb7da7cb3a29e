"""Writing down what came and went: exchanges and threads, as an observer of receipts (OIP 1.2 §10.2, §11)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from deedbox import Operation, Outcome, Receipt, Unit
from deedbox.clock import utc_z
from deedbox.delivery import FED_SENT, SentExchange
from deedbox_inbox.conversation import SUMMARY, Message, State, advance
from deedbox_inbox.phrasing import is_error, paid_with, without_secrets
from deedbox_inbox.senders import thread_key
from deedbox_inbox.tables import BLOCKS, EXCHANGES, RECENT, THREADS

RECEIPTS_SHOWN = 100
BLOCK_KEPT = 86_400_000
DELIVERED = "send"
"""The verdict of a message of ours that arrived (OIP 1.2 §10.2)."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Numbers:
    """The next number of an exchange, read once a group; a thread is numbered by the exchange that opened it."""

    def __init__(self, unit: Unit) -> None:
        last = unit.one("select id from inbox_exchange order by id desc limit 1")
        self.last: int = last.id if last else 0

    def flush(self, group: Any) -> None:
        """Numbers are only counted; the rows that carry them write themselves."""

    def next(self) -> int:
        self.last += 1
        return self.last


@dataclass(slots=True)
class Change:
    """What an exchange does to its thread: the messages it is counted for, and those that move the state."""

    key: str
    conversation: str
    home: str
    other: str
    opener: str
    verified: bool
    count: int
    effective: tuple[Message, ...]
    invocation: str | None


class ExchangeObserver:
    """Sees every receipt that concerns an envelope, received or sent."""

    name = "inbox-exchanges"
    transitions = None
    changes_rows = False

    def observe(self, unit: Unit, receipt: Receipt) -> None:
        operation, outcome = receipt.operation, receipt.outcome
        if operation is None or outcome is None:
            return
        if operation.intent.surface == "inbox":
            if operation.found is not None and outcome.code != "rate_limited":  # that is not answered by an envelope
                self._received(unit, receipt, operation, outcome)
        elif operation.intent.object_key == FED_SENT.key and outcome.ok:
            self._sent(unit, operation.arguments)

    def _received(self, unit: Unit, receipt: Receipt, operation: Operation, outcome: Outcome) -> None:
        found, envelope = operation.found, operation.found.envelope
        number = unit.part("inbox", Numbers).next()
        taken = is_taken(operation, outcome)
        thread = 0
        answer = operation.intent.phrasing.sent  # type: ignore[attr-defined]  # an inbox intent has an inbox phrasing
        if taken:
            thread = touch(unit, number, _change(operation, outcome, answer))
            receipt.remember["exchange"] = number
            if found.opened:
                _remember_block(unit, found)
        else:
            unit.note(RECENT, (number, envelope.id, unit.now))
        reason = outcome.code if is_error(operation, outcome) else None
        row = (
            *(number, thread, "inbound", unit.now, envelope.id, envelope.kind, envelope.sender, envelope.recipient),
            *(envelope.in_reply_to, hash_of(envelope), operation.principal.verified),
            *(verdict(operation, outcome), status_of(operation, outcome), reason, paid_with(outcome, "audience")),
            *(paid_with(outcome) or outcome.extra.get("fingerprint"), operation.invocation),
            *(answer["id"], answer["kind"], answer["body_sha256"], True, unit.now),
        )
        unit.note(EXCHANGES, row)

    def _sent(self, unit: Unit, sent: SentExchange) -> None:
        number = unit.part("inbox", Numbers).next()
        thread = touch(unit, number, _sent_change(unit, sent)) if sent.verdict == DELIVERED else 0
        unit.note(RECENT, (number, sent.message_id, unit.now))
        row = (
            *(number, thread, "outbound", sent.sent_at, sent.message_id, sent.msg_kind, sent.sender, sent.recipient),
            *(sent.in_reply_to, sent.body_sha256, True, sent.verdict, sent.status, sent.reason, None, None),
            *(sent.invocation_id, sent.response_id, sent.response_kind, sent.response_body_sha256),
            *(sent.response_verified, unit.now),
        )
        unit.note(EXCHANGES, row)


# --- inbound -----------------------------------------------------------------------------------------------------


def is_taken(operation: Operation, outcome: Outcome) -> bool:
    """Whether the message spent its id: its sender was believed, and it was no repeat."""
    return operation.principal.kind == "peer" and outcome.code != "replay_rejected"


def verdict(operation: Operation, outcome: Outcome) -> str:
    """The ledger's word for how a message was taken (OIP 1.2 §8.3)."""
    if outcome.code in ("replay_rejected", "decrypt_failed", "decrypt_refused"):
        return str(outcome.code)
    if not is_taken(operation, outcome):
        return f"rejected:{outcome.code}"
    if is_error(operation, outcome):
        return f"denied:{outcome.code}"
    return {"query": "echoed", "invoke": "invoked"}.get(operation.found.envelope.kind, "acknowledged")


def status_of(operation: Operation, outcome: Outcome) -> int:
    """The virtual status of the answer (OIP 1.2 §8.2)."""
    return outcome.status if is_error(operation, outcome) else 200


def hash_of(envelope: Any) -> str:
    """The hash the sender gave, if it is one: of what was turned away it may be any text."""
    given: str = envelope.body_sha256
    return given if _SHA256.fullmatch(given) else ""


def _change(operation: Operation, outcome: Outcome, answer: dict[str, Any]) -> Change:
    found, envelope = operation.found, operation.found.envelope
    at = utc_z(operation.now)
    received = Message(
        envelope.id,
        envelope.kind,
        envelope.sender,
        at,
        envelope.in_reply_to,
        _text(found.body.get("decision")),
        _summary(operation),
        operation.intent.object_key if envelope.kind == "invoke" and not found.encrypted else None,
    )
    replied = Message(answer["id"], answer["kind"], envelope.recipient, at, envelope.id)
    ineffective = envelope.kind in ("cancel", "propose") and is_error(operation, outcome)
    return Change(
        found.thread,
        envelope.conversation,
        envelope.recipient,
        envelope.sender,
        opener=envelope.sender,
        verified=operation.principal.verified,
        count=2,
        effective=() if ineffective else (received, replied),
        invocation=operation.invocation,
    )


def _summary(operation: Operation) -> str:
    """What a proposal says of itself; of a sealed one nothing, for threads are open to read (OIP 1.2 §11.2, §26.2)."""
    found = operation.found
    if found.envelope.kind != "propose" or found.encrypted:
        return ""
    said = found.body.get("summary") or found.body.get("text")
    if not isinstance(said, str):
        return ""
    clean: str = without_secrets(said) if found.suspicious else said
    return clean[:SUMMARY]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _remember_block(unit: Unit, found: Any) -> None:
    """The first verified sender of a sealed block is the only one (OIP 1.2 §6.7)."""
    if unit.fact(BLOCKS, found.block) is None:
        until = max(unit.now, found.envelope.expires_at) + BLOCK_KEPT
        unit.put(BLOCKS, {"sha256": found.block, "sender": found.envelope.sender, "kept_until": until})


# --- outbound ----------------------------------------------------------------------------------------------------


def _sent_change(unit: Unit, sent: SentExchange) -> Change:
    home, other = sent.sender.lower(), sent.recipient.lower()
    first = Message(
        sent.message_id,
        sent.msg_kind,
        home,
        utc_z(sent.sent_at),
        sent.in_reply_to,
        sent.sent_decision,
        without_secrets(sent.summary or ""),
        sent.key,
    )
    messages = [first]
    if sent.response_id and sent.response_kind and sent.response_verified:
        at = utc_z(unit.now)
        messages.append(
            Message(sent.response_id, sent.response_kind, other, at, sent.message_id, decision=sent.decision)
        )
    return Change(
        thread_key(home, other, sent.conversation),
        sent.conversation,
        home,
        other,
        opener=home,
        verified=True,
        count=len(messages),
        effective=tuple(messages),
        invocation=sent.invocation_id,
    )


# --- threads -----------------------------------------------------------------------------------------------------


def touch(unit: Unit, number: int, change: Change) -> int:
    """Apply an exchange to its thread, opening it with the first; the thread's number."""
    row = unit.fact(THREADS, change.key) or _opened(unit, number, change)
    state = State(
        row["state"],
        orjson.loads(row["commitments"]),
        orjson.loads(row["requests"]),
        orjson.loads(row["final"]) if row["final"] else None,
    )
    for message in change.effective:
        advance(state, message)
    receipts = row["receipts"]
    if change.invocation:
        receipts = _json([*orjson.loads(receipts), change.invocation][-RECEIPTS_SHOWN:])
    unit.put(
        THREADS,
        {
            **row,
            "updated_at": unit.now,
            "state": state.state,
            "messages": row["messages"] + change.count,
            "commitments": _json(state.open_commitments),
            "requests": _json(state.unresolved_requests),
            "receipts": receipts,
            "final": _json(state.final) if state.final else None,
        },
    )
    return int(row["id"])


def _json(value: Any) -> str:
    return orjson.dumps(value).decode() if value else "[]"


def _opened(unit: Unit, number: int, change: Change) -> dict[str, Any]:
    return {
        "key": change.key,
        "id": number,
        "conversation": change.conversation,
        "home": change.home,
        "other": change.other,
        "verified": change.verified,
        "opened_by": change.opener,
        "created_at": unit.now,
        "updated_at": unit.now,
        "state": "open",
        "messages": 0,
        "commitments": "[]",
        "requests": "[]",
        "receipts": "[]",
        "final": None,
    }
