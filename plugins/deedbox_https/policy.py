"""Who may say how a delivery ended: the node itself, and nobody else, its owner included."""

from __future__ import annotations

from deedbox import Allow, Deny, Operation, Unit
from deedbox.delivery import FED_SENT


class OutboxAlone:
    """Speaks of ``FED_SENT`` only."""

    name = "outbox-alone"

    def judge(self, unit: Unit, operation: Operation) -> Allow | Deny | None:
        if operation.intent.object_key != FED_SENT.key:
            return None
        if operation.principal.kind != "node":
            return Deny("not_allowed", 403, "only the outbox says how a delivery ended", policy=self.name)
        return Allow(policy=self.name)
