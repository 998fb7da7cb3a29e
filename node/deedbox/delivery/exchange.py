"""``FED_SENT``: the end of a delivery as an operation, with a receipt that others can observe (decision 32).

Only the outbox itself can ask for it; its runner closes the delivery in the receipt's own unit. What the ledger and the
observers are told holds ids, kinds and hashes, never a body or a token (OIP 1.2 §10.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from deedbox.canonical import digest, sha256_hex
from deedbox.catalog import Arguments, Inside, Object
from deedbox.identity.principal import Internal
from deedbox.intent import Effect, Intent, Operation, Outcome, Output
from deedbox.refusals import Refusal
from deedbox.storage.unit import Unit

if TYPE_CHECKING:
    from deedbox.ledger.receipt import Receipt

SURFACE: Final = "outbox"
SENT, UNDELIVERED = "send", "undeliverable"
"""Verdicts, as the federation ledger shows them (OIP 1.2 §10.2)."""


class SentExchange(Arguments):
    """A message of ours and what became of it.

    ``sent_decision`` and ``decision`` are what our body and the reply's say of a proposal; ``status`` is the peer's
    HTTP status, 504 if it never gave one; ``reason`` is that of an ``error``, or why nothing was delivered or believed.
    """

    message_id: str
    msg_kind: str
    sender: str
    recipient: str
    conversation: str
    in_reply_to: str | None
    body_sha256: str
    sent_at: int
    sent_decision: str | None = None
    summary: str | None = None
    key: str | None = None
    attempts: int
    verdict: str
    status: int
    reason: str | None = None
    response_id: str | None = None
    response_kind: str | None = None
    response_body_sha256: str | None = None
    response_verified: bool = False
    invocation_id: str | None = None
    decision: str | None = None


def _close_nothing(unit: Unit) -> None:
    """A delivery that only ended in words."""


@dataclass(slots=True)
class Ending(Intent):
    """The outbox' own intent: ``close`` writes in the operation's unit that the delivery has ended."""

    close: Callable[[Unit], None] = _close_nothing


class Wordless:
    """Nobody waits for an answer."""

    def output(self, operation: Operation, outcome: Outcome) -> Output:
        return Output(b"{}", _EMPTY)

    def answer(self, operation: Operation, output: Output, receipt: Receipt | None) -> bytes:
        return output.body


_EMPTY = sha256_hex(b"{}")


def _run(unit: Unit, given: SentExchange, operation: Operation) -> None:
    if not isinstance(operation.intent, Ending):
        raise Refusal("not_allowed", 403, "only the outbox says how a delivery ended")
    operation.intent.close(unit)


FED_SENT: Final = Object(
    key="FED_SENT",
    summary="Record how the delivery of a message of this node ended.",
    effect=Effect.DISCLOSURE,
    arguments=SentExchange,
    runner=Inside(_run),
    listed=False,
    kind="system",
    category="oip",
    safe=True,
    idempotent=True,
)


def ending(exchange: SentExchange, cause: str, now: int, close: Callable[[Unit], None]) -> Ending:
    """The intent that ends a delivery."""
    return Ending(
        surface=SURFACE,
        at=now,
        object_key=FED_SENT.key,
        arguments=exchange,
        phrasing=Wordless(),
        credential=Internal(cause),
        address=f"{SURFACE} {exchange.recipient.rpartition('@')[2]}",
        inputs_sha256=digest(exchange.model_dump()),
        subject=_subject(exchange),
        close=close,
    )


def _subject(exchange: SentExchange) -> dict[str, Any]:
    return {
        "direction": "outbound",
        "msg": exchange.message_id,
        "kind": exchange.msg_kind,
        "from": exchange.sender,
        "to": exchange.recipient,
        "conversation": exchange.conversation,
        "body_sha256": exchange.body_sha256,
        "verdict": exchange.verdict,
        "peer_status": exchange.status,
        "reason": exchange.reason,
        "attempts": exchange.attempts,
        "response": exchange.response_id,
        "response_kind": exchange.response_kind,
        "response_body_sha256": exchange.response_body_sha256,
        "response_verified": exchange.response_verified,
        "response_invocation": exchange.invocation_id,
    }
