"""The kinds of message as objects, and who may send them (OIP 1.2 §4.2, §11.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from deedbox import Allow, Arguments, Deny, Effect, Inside, MessageKind, Object, Operation, Unit
from deedbox_inbox.tables import THREADS


class Nothing(Arguments):
    """The body of an envelope is data, not arguments."""


def acknowledge(unit: Unit, given: Nothing, operation: Operation) -> None:
    """Receiving a message does nothing but be recorded; the phrasing answers."""


NOTHING = Nothing()

KINDS = (
    ("query", "QUERY", "Answer a signed question with its echo; runs nothing."),
    ("propose", "PROPOSE", "Take note of offered work; authorises nothing."),
    ("result", "RESULT", "Take note of an answer."),
    ("event", "EVENT", "Take note of a report."),
    ("cancel", "CANCEL", "Withdraw a conversation or a message."),
    ("error", "ERROR", "Take note of a refusal."),
)


def objects() -> Iterator[Object[Any]]:
    for kind, key, summary in KINDS:
        yield Object(
            key=key,
            summary=summary,
            effect=Effect.DISCLOSURE,
            arguments=Nothing,
            runner=Inside(acknowledge),
            public=kind == "query",
            listed=False,
            kind="system",
            category="oip",
            safe=True,
            idempotent=True,
        )


def message_kinds() -> Iterator[MessageKind]:
    for kind, key, _ in KINDS:
        yield MessageKind(kind, key, request=kind in ("query", "propose"))
    yield MessageKind("invoke", None, request=True)


NOT_GATED = Deny("capability_invalid", 401, "this node has made no capability", policy="inbox-messages")


class MessagePolicy:
    """A proven sender may deliver any kind of message; what an invoke runs under, others judge.

    ``gated``: whether some facet here makes capabilities, and so judges them.
    """

    name = "inbox-messages"

    def __init__(self, *, gated: bool) -> None:
        self._gated = gated

    def judge(self, unit: Unit, operation: Operation) -> Allow | Deny | None:
        if operation.intent.surface != "inbox":
            return None
        found = operation.found
        envelope = found.envelope
        if envelope.kind == "invoke":
            return None if self._gated else NOT_GATED
        if envelope.kind == "query":
            return None
        if not operation.principal.verified:
            detail = "only a question may come from an unproven sender"
            return Deny("sender_unverifiable", 401, detail, policy=self.name)
        if envelope.kind == "cancel" and not _may_cancel(unit.fact(THREADS, found.thread), found):
            detail = "cancel what you sent, or a conversation you opened"
            return Deny("cancel_not_yours", 403, detail, policy=self.name)
        return Allow(policy=self.name)


def _may_cancel(thread: dict[str, Any] | None, found: Any) -> bool:
    """Honoured from whoever opened the thread or sent the message that is cancelled (OIP 1.2 §11.6)."""
    envelope = found.envelope
    if thread is None or thread["opened_by"] == envelope.sender:
        return True
    named = found.body.get("cancel")
    meant = named if isinstance(named, str) else envelope.in_reply_to
    sent = [*orjson.loads(thread["commitments"]), *orjson.loads(thread["requests"])]
    return any(each["msg_id"] == meant and each["from"].lower() == envelope.sender for each in sent)
