"""The one road: decide, act, record. Every surface calls `govern` and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox.catalog import Inside, Outside
from deedbox.govern.act import Started, act_inside, act_outside, end_lease, start
from deedbox.govern.authenticate import believe, prepare
from deedbox.govern.authorise import authorise
from deedbox.govern.claims import CLAIMS
from deedbox.govern.classify import classify
from deedbox.govern.once import REPEATED, once, repeat
from deedbox.govern.record import record, statement, tell, write
from deedbox.identity.principal import ANONYMOUS, Principal
from deedbox.intent import Allow, Deny, Ended, Hold, Intent, Operation, Outcome, Proof, Reply
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.storage.group import Ask
    from deedbox.storage.unit import Unit


async def govern(node: Node, intent: Intent) -> Reply:
    """Take an asking down the road; the reply has been committed when this returns."""
    try:
        node.shield.check(intent.address, intent.at)
        proof = await prepare(node, intent)
    except Refusal as refusal:
        return await refuse(node, intent, refusal)
    asks = (*proof.asks, *announced(node, intent))
    if intent.once is not None:
        asks = (*asks, (CLAIMS, intent.once.key))
    step = await node.database.run_asking(asks, decide, node, intent, proof)
    if isinstance(step, Started):
        outcome = await act_outside(node, step)
        step = await node.database.run_asking((), finish, node, step, outcome)
    return step


def announced(node: Node, intent: Intent) -> list[Ask]:
    """The rows its judges will want; one that breaks here is left to fail, closed, when it judges."""
    asks: list[Ask] = []
    for policy in node.announcing:
        try:
            asks += policy.facts(intent)
        except Exception:
            node.log.exception("policy_failed", policy=policy.name)
    return asks


async def refuse(node: Node, intent: Intent, refusal: Refusal) -> Reply:
    """A no before anybody was believed: nothing is claimed, an event is written if the cap allows."""
    if node.refusal_events.worth_writing(intent.address, refusal.code, intent.at):
        await node.database.run(note_refusal, node, intent, refusal)
    return Reply(Outcome.refused(refusal), refusal=refusal)


def note_refusal(unit: Unit, node: Node, intent: Intent, refusal: Refusal) -> None:
    said = {
        "surface": intent.surface,
        "object": intent.object_key[:64],
        "actor": "unrecognised",
        "ended": "refused",
        "code": refusal.code,
        "status": refusal.status,
        **intent.subject,
    }
    node.ledger.event(unit, {"ts": unit.now, **said})


def decide(unit: Unit, node: Node, intent: Intent, proof: Proof) -> Reply | Started:
    """Everything up to the act, in one unit of the group; an inside act happens in it too."""
    try:
        principal = believe(unit, node, intent, proof)
    except Refusal as refusal:
        return disbelieve(unit, node, intent, proof, refusal)
    earlier = once(unit, node, intent)
    if earlier is not None and intent.once is not None:
        return answer_repeat(unit, node, intent, proof, principal, repeat_of=earlier)
    try:
        if proof.objection is not None:
            raise proof.objection
        operation = classify(node, intent, principal, proof, unit.now)
    except Refusal as refusal:
        unknown = Operation(intent, principal, node.catalog.get(intent.object_key), None, unit.now, proof.found)
        return record(unit, node, unknown, Outcome.refused(refusal))
    return weigh(unit, node, operation)


def weigh(unit: Unit, node: Node, operation: Operation) -> Reply | Started:
    """Steps 5 to 7 of an operation that is understood."""
    verdict = authorise(unit, node, operation)
    if isinstance(verdict, Deny):
        return record(unit, node, operation, Outcome.refused(verdict))
    if isinstance(verdict, Hold):
        return record(unit, node, operation, Outcome.held(verdict))
    if verdict.arguments is not None:
        operation.arguments, operation.unfit = verdict.arguments, None
    if operation.unfit is not None:
        return record(unit, node, operation, Outcome.refused(operation.unfit))
    if operation.intent.dry:
        return record(unit, node, operation, Outcome(Ended.SHAPED))
    return perform(unit, node, operation, verdict)


def perform(unit: Unit, node: Node, operation: Operation, verdict: Allow) -> Reply | Started:
    """Pay what the allowance costs, then act."""
    for charge in verdict.charges:
        charge.apply(unit)
    found = operation.object
    if found is None:
        return record(unit, node, operation, Outcome.failed("unknown_object", verdict.charges))
    leased = isinstance(found.runner, Outside)  # its lease is kept under the invocation
    operation.invocation = node.ids.new("inv", unit.now) if found.listed or leased else None
    match found.runner:
        case Inside() as runner:
            outcome = act_inside(unit, node, operation, runner)
            outcome.charges = verdict.charges
            return record(unit, node, operation, outcome)
        case Outside() as runner:
            return start(unit, node, operation, runner, verdict.charges)


def finish(unit: Unit, node: Node, started: Started, outcome: Outcome) -> Reply:
    """Record how an outside act ended; too late, it stays interrupted."""
    if not end_lease(unit, started):
        late = Refusal("interrupted", 500, "the act outlived its lease; its effect is unknown")
        return Reply(Outcome(Ended.INTERRUPTED, code="interrupted", status=500), refusal=late)
    return record(unit, node, started.operation, outcome)


def disbelieve(unit: Unit, node: Node, intent: Intent, proof: Proof, refusal: Refusal) -> Reply:
    """A no up to and including authentication: no id is spent, an event is written if the cap allows."""
    operation = Operation(intent, ANONYMOUS, node.catalog.get(intent.object_key), None, unit.now, proof.found)
    outcome = Outcome.refused(refusal)
    output = intent.phrasing.output(operation, outcome)
    receipt = write(unit, node, operation, outcome, {**statement(operation, outcome, output), "actor": "unrecognised"})
    tell(unit, node, receipt)
    answer = intent.phrasing.answer(operation, output, receipt)
    return Reply(outcome, answer, receipt, operation, refusal=refusal)


def answer_repeat(
    unit: Unit, node: Node, intent: Intent, proof: Proof, principal: Principal, *, repeat_of: dict[str, object]
) -> Reply:
    """Nothing runs; the repeat of somebody recognised is a refusal with a place in the chain."""
    operation = Operation(intent, principal, node.catalog.get(intent.object_key), None, unit.now, proof.found)
    assert intent.once is not None  # noqa: S101  # only an intent with an id can repeat one
    reply = repeat(unit, node, intent, intent.once, repeat_of, operation)
    if reply.undelivered:
        return reply
    outcome = Outcome.refused(Refusal(REPEATED.code, REPEATED.status, REPEATED.detail, extra=_original(reply)))
    output = intent.phrasing.output(operation, outcome)
    receipt = write(unit, node, operation, outcome, statement(operation, outcome, output))
    tell(unit, node, receipt)
    answer = intent.phrasing.answer(operation, output, receipt)
    return Reply(
        outcome,
        answer,
        receipt,
        operation,
        repeat=True,
        claim=reply.claim,
        original=reply.original,
        stored=reply.stored,
    )


def _original(reply: Reply) -> dict[str, object]:
    return {"original": dict(reply.original)} if reply.original else {}
