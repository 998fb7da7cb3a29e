"""Step 7, record: append to the ledger, tell the observers, store the answer; what is an entry and what an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from deedbox.govern.claims import DONE, claim
from deedbox.intent import Effect, Ended, Operation, Outcome, Output, Reply
from deedbox.ledger.receipt import Receipt

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.storage.unit import Unit


def deserves_entry(operation: Operation, outcome: Outcome) -> bool:
    """Whether this has a place of its own in the chain (decision 32)."""
    if outcome.ended is Ended.REFUSED:
        return operation.principal.recognised
    if outcome.charges:
        return True
    return operation.effect is Effect.EXECUTION and outcome.ended is not Ended.SHAPED


def statement(operation: Operation, outcome: Outcome, output: Output) -> dict[str, Any]:
    """What the ledger says of an operation: who, what, how it ended, and hashes; never contents, never a token."""
    intent = operation.intent
    said: dict[str, Any] = {
        "surface": intent.surface,
        "object": intent.object_key[:64],  # no object's key is longer; a stranger's text may be
        "actor": operation.principal.id,
        "ended": outcome.ended.value,
        "inputs_sha256": intent.inputs_sha256,
        "output_sha256": output.sha256,
    }
    if outcome.code:
        said["code"] = outcome.code
        said["status"] = outcome.status
    if operation.invocation:
        said["invocation"] = operation.invocation
    if outcome.charges:
        said["charges"] = [charge.describe() for charge in outcome.charges]
    if intent.subject:
        said.update(intent.subject)
    if outcome.said:
        said.update(outcome.said)
    if output.said:
        said.update(output.said)
    return said


def write(unit: Unit, node: Node, operation: Operation, outcome: Outcome, said: Mapping[str, Any]) -> Receipt | None:
    """Append the entry or the event; of refusals of callers nobody recognises no more than the cap (decision 32)."""
    invocation = operation.invocation
    if deserves_entry(operation, outcome):
        receipt = node.ledger.entry(
            unit,
            outcome.ended.value,
            operation.principal.id,
            said,
            subject=operation.intent.object_key,
            invocation=invocation,
        )
    elif outcome.ended is Ended.REFUSED and not _worth_writing(node, operation, outcome):
        return None
    else:
        receipt = node.ledger.event(unit, {"ts": unit.now, **said}, invocation=invocation)
    receipt.operation, receipt.outcome = operation, outcome
    return receipt


def _worth_writing(node: Node, operation: Operation, outcome: Outcome) -> bool:
    intent = operation.intent
    return node.refusal_events.worth_writing(intent.address, outcome.code or "refused", intent.at)


def record(unit: Unit, node: Node, operation: Operation, outcome: Outcome) -> Reply:
    """Write, tell, store; the answer leaves only after the commit."""
    phrasing = operation.intent.phrasing
    output = phrasing.output(operation, outcome)
    receipt = write(unit, node, operation, outcome, statement(operation, outcome, output))
    answer = phrasing.answer(operation, output, receipt)
    remembered = tell(unit, node, receipt)
    once = operation.intent.once
    if once is not None:
        kept = {"response": output.extra, "invocation": operation.invocation, **remembered}
        claim(unit, operation.intent, node.processes.own, state=DONE, reply=answer, meta=orjson.dumps(kept).decode())
        node.handout.expect(unit.group)
    claimed, group = (once.key, unit.group) if once is not None else (None, 0)
    return Reply(outcome, answer, receipt, operation, claim=claimed, group=group)


def tell(unit: Unit, node: Node, receipt: Receipt | None) -> Mapping[str, Any]:
    """Tell whoever wants to know; one that breaks loses its notes and nothing else. What the claim shall keep of it."""
    if receipt is None or receipt.operation is None:
        return {}
    operation = receipt.operation
    for observer in node.observers_of(operation.intent.object_key):
        mark = unit.mark()
        try:
            if observer.changes_rows:
                with unit.savepoint():
                    observer.observe(unit, receipt)
            else:
                unit.guarded(observer.observe, unit, receipt)
        except Exception:
            unit.take_back(mark)
            node.log.exception("observer_failed", observer=observer.name, receipt=receipt.id)
    return receipt.remember
