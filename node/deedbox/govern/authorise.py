"""Step 5, authorise: every policy judges; deny beats hold beats allow; silence denies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from deedbox.intent import Allow, Deny, Effect, Operation, Verdict

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.storage.unit import Unit

SILENCE = Deny("not_allowed", 403, "no policy allows this")


def authorise(unit: Unit, node: Node, operation: Operation) -> Verdict:
    """The verdict on an operation, whatever the order of the policies."""
    return combine(_judged(unit, node, operation))


def _judged(unit: Unit, node: Node, operation: Operation) -> Iterable[Verdict | None]:
    for policy in node.policies:
        try:
            yield unit.guarded(policy.judge, unit, operation)
        except Exception:
            node.log.exception("policy_failed", policy=policy.name)
            yield Deny("policy_failed", 403, "a policy could not judge", policy=policy.name)


def combine(verdicts: Iterable[Verdict | None]) -> Verdict:
    """The strongest verdict; among equals the one whose policy's name comes first, so that even wording is stable."""
    strongest: Verdict | None = None
    for verdict in verdicts:
        if verdict is None:
            continue
        if strongest is None or (-verdict.weight, verdict.policy) < (-strongest.weight, strongest.policy):
            strongest = verdict
    return strongest or SILENCE


class PublicDisclosures:
    """Anyone may read what is declared public."""

    name = "public-disclosures"

    def judge(self, unit: Unit, operation: Operation) -> Allow | None:
        found = operation.object
        if found is not None and found.public and found.effect is Effect.DISCLOSURE:
            return Allow(policy=self.name)
        return None


class OwnersRule:
    """The owner's key may ask for everything; other policies may still deny or hold."""

    name = "owner"

    def judge(self, unit: Unit, operation: Operation) -> Allow | None:
        return Allow(policy=self.name) if operation.principal.kind == "owner" and operation.object else None
