"""Threads as a projection: what each message does to the conversation it belongs to (OIP 1.2 §11).

`advance` is the whole law and touches nothing; the observer in ``record.py`` applies it to rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPEN, PROPOSED, CLOSED, CANCELLED = "open", "proposed", "closed", "cancelled"
ALLOWED_NEXT: Mapping[str, tuple[str, ...]] = {
    OPEN: ("query", "propose", "invoke", "result", "event", "cancel", "error"),
    PROPOSED: ("accept", "reject", "query", "invoke", "cancel", "error"),
    CLOSED: ("query", "propose", "invoke"),
    CANCELLED: (),
}
REQUESTS = ("query", "invoke")
OPENING = (*REQUESTS, "propose")
"""Kinds that want something, and so are refused where a conversation was cancelled (OIP 1.2 §11.6)."""
ANSWERS = ("result", "event", "error")
MOST_OPEN = 100
SUMMARY = 200


@dataclass(slots=True)
class Message:
    """What of a message a thread looks at; ``at`` in printed UTC-Z form."""

    msg_id: str
    kind: str
    sender: str
    at: str
    in_reply_to: str | None = None
    decision: str | None = None
    summary: str = ""
    key: str | None = None


@dataclass(slots=True)
class State:
    """Where a thread stands: its state, and what is still open in it; ``final`` is how it last ended."""

    state: str = OPEN
    open_commitments: list[dict[str, Any]] = field(default_factory=list)
    unresolved_requests: list[dict[str, Any]] = field(default_factory=list)
    final: dict[str, Any] | None = None

    @property
    def allowed_next_kinds(self) -> tuple[str, ...]:
        return ALLOWED_NEXT[self.state]


def advance(state: State, message: Message) -> None:
    """Apply one message, sent or received, in the order of recording (OIP 1.2 §11.3, §11.6)."""
    if message.kind == "cancel":
        state.state = CANCELLED
        state.final = {"kind": "cancel", "msg_id": message.msg_id, "ts": message.at}
        state.open_commitments, state.unresolved_requests = [], []
    elif message.kind in REQUESTS:
        request = {"msg_id": message.msg_id, "kind": message.kind, "from": message.sender, "key": message.key}
        state.unresolved_requests = [*state.unresolved_requests, request][-MOST_OPEN:]
        if state.state == CLOSED:
            state.state = OPEN
    elif message.kind == "propose":
        commitment = {"msg_id": message.msg_id, "from": message.sender, "summary": message.summary[:SUMMARY]}
        state.open_commitments = [*state.open_commitments, commitment][-MOST_OPEN:]
        if state.state != CANCELLED:
            state.state = PROPOSED
    elif message.kind in ANSWERS:
        _answered(state, message)


def _answered(state: State, message: Message) -> None:
    answered = message.in_reply_to
    if answered:
        state.unresolved_requests = [each for each in state.unresolved_requests if each["msg_id"] != answered]
        if message.decision in ("accept", "reject"):
            state.open_commitments = [each for each in state.open_commitments if each["msg_id"] != answered]
    if state.state == CANCELLED:
        return
    if not state.open_commitments and not state.unresolved_requests:
        state.state = CLOSED
        state.final = {"kind": "result", "msg_id": message.msg_id, "ts": message.at}
    elif not state.open_commitments and state.state == PROPOSED:
        state.state = OPEN
