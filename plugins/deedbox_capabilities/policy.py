"""The judge of every asking that holds a capability up, and of who may make, end or look at one.

Implements OIP 1.2 §8.4, §14.5, §14.7, §14.10, §14.12, §14.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deedbox import Allow, Deny, Effect, Intent, Object, Operation, Unit
from deedbox_capabilities import gates
from deedbox_capabilities.bearer import denial, failure, held
from deedbox_capabilities.chain import walk
from deedbox_capabilities.scopes import READING
from deedbox_capabilities.tables import CAPABILITIES
from deedbox_capabilities.tokens import TokenKey, fingerprint

MINT, REVOKE, EXPLAIN = "CAPABILITY_MINT", "CAPABILITY_REVOKE", "CAPABILITY_EXPLAIN"
OWNERS_ONLY = frozenset({MINT, REVOKE})


class CapabilityPolicy:
    """Allows what a live grant covers, at the price of one use, and denies everything else that holds one up."""

    name = gates.POLICY

    def __init__(self, key: TokenKey) -> None:
        self._key = key

    def facts(self, intent: Intent) -> Iterator[tuple[Any, str]]:
        """The record of the token that is held up."""
        token = held(intent)
        if token:
            yield CAPABILITIES, fingerprint(token)

    def judge(self, unit: Unit, operation: Operation) -> Allow | Deny | None:
        intent, found = operation.intent, operation.object
        text = held(intent)
        if intent.surface == "inbox" and intent.named:
            if not text:
                return gates.deny("capability_required", 401, note="an invoke needs a capability")
            return gates.crossing(unit, operation, self._key.read(text))
        if found is None:
            return None
        if found.key in OWNERS_ONLY:
            return self._owners(operation)
        if found.key == EXPLAIN:
            return self._explaining(unit, operation)
        if not text or (intent.token is None and _is_open(found)):
            return None
        return self._direct(unit, operation, found, text)

    def _direct(self, unit: Unit, operation: Operation, found: Object[Any], text: str) -> Allow | Deny:
        token = self._key.read(text)
        wrong = failure(token, unit.now)
        if token is None or wrong is not None:
            return denial(wrong or ("token_corrupted", {}))
        return gates.direct(unit, operation, found, token)

    def _owners(self, operation: Operation) -> Deny | None:
        if operation.principal.kind == "owner":
            return None
        return gates.deny("unauthorized", 401, note="only the owner makes or ends capabilities")

    def _explaining(self, unit: Unit, operation: Operation) -> Allow | Deny | None:
        """A token explains itself to whoever holds it; another's fingerprint needs the read tier, alive."""
        if operation.principal.kind == "owner":
            return None
        if operation.unfit or operation.arguments.fingerprint is None or self._reads(unit, operation):
            return Allow(policy=self.name)
        return gates.deny("unauthorized", 401, note="explaining by fingerprint needs a live read or act token")

    def _reads(self, unit: Unit, operation: Operation) -> bool:
        text = held(operation.intent)
        token = self._key.read(text) if text else None
        if token is None or token.expired(unit.now) or token.scope not in READING:
            return False
        row = gates.record_of(unit, token)
        return row is not None and not row["audience"] and walk(unit, token.fingerprint).live


def _is_open(found: Object[Any]) -> bool:
    """Anybody may read it, so that a credential that came along takes nothing away."""
    return found.public and found.effect is Effect.DISCLOSURE
