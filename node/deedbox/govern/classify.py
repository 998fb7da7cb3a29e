"""Step 4, classify: find the object, validate its arguments, know its effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox.identity.principal import Principal
from deedbox.intent import Intent, Operation, Proof
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.node import Node


def classify(node: Node, intent: Intent, principal: Principal, proof: Proof, now: int) -> Operation:
    """The intent understood. An unknown object is carried on only for an intent that names it by envelope."""
    found = node.catalog.get(intent.object_key)
    operation = Operation(intent, principal, found, intent.arguments, now, proof.found, catalog=node.catalog)
    if found is None:
        if intent.named:
            return operation
        near = node.catalog.near(intent.object_key)
        raise Refusal(
            "unknown_object",
            404,
            "there is no such object here",
            extra={"attempted": intent.object_key[:64], "did_you_mean": near},
        )
    try:
        operation.arguments = found.accept(intent.arguments)
    except Refusal as refusal:
        if not (intent.named or intent.token):
            raise
        operation.unfit = refusal
    return operation
