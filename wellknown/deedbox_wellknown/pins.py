"""Remembers the first key seen of each agent, and notices when another takes its place unannounced (OIP 1.2 §29 W14).

What is remembered is also told to the ledger, key and all, so that signatures can be judged years later without a
network (kernel-notes §2). A key that replaced another unannounced serves disclosure until the owner confirms it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deedbox import AgentRecord, Arguments, Check, Inside, Object, Operation, Refusal, Unit
from deedbox.intent import Effect
from deedbox_wellknown.tables import PINS

if TYPE_CHECKING:
    from deedbox import Kernel, Node

ENTRY_KIND = "peer_key"


def pin(unit: Unit, kernel: Kernel, record: AgentRecord) -> bool:
    """Whether an agent's key is the one we know or was announced beside it; the first we see is believed."""
    agent, key = record.id, record.key.thumbprint
    known = unit.fact(PINS, agent)
    if known is None:
        unit.put(PINS, {"agent": agent, "thumbprint": key, "first_seen": unit.now, "changed_to": None})
        _tell(unit, kernel, record, how="first_seen")
        return True
    if known["thumbprint"] == key:
        return True
    if any(known["thumbprint"] == listed.thumbprint for listed, _, _ in record.keys.values()):
        unit.put(PINS, {**known, "thumbprint": key, "first_seen": unit.now, "changed_to": None})
        _tell(unit, kernel, record, how="announced", before=known["thumbprint"])
        return True
    if known["changed_to"] != key:
        unit.put(PINS, {**known, "changed_to": key})
        _tell(unit, kernel, record, how="unannounced", before=known["thumbprint"])
        kernel.log.warning("peer_key_changed", agent=agent, before=known["thumbprint"], thumbprint=key)
    return False


def _tell(unit: Unit, kernel: Kernel, record: AgentRecord, **said: str) -> None:
    payload = {"agent": record.id, "thumbprint": record.key.thumbprint, "jwk": record.key.jwk, **said}
    kernel.ledger.entry(unit, ENTRY_KIND, "node", payload, subject=record.id)


class ChangedKey(Arguments):
    """An agent, and the thumbprint of the key its owner is known to have changed to."""

    agent: str
    thumbprint: str


def confirm_key(kernel: Kernel) -> Object[ChangedKey]:
    """The owner's word that a key which changed unannounced is right."""

    def confirm(unit: Unit, given: ChangedKey, operation: Operation) -> dict[str, Any]:
        agent = given.agent.lower()
        known = unit.fact(PINS, agent)
        if known is None or known["changed_to"] != given.thumbprint:
            raise Refusal("no_changed_key", 404, f"{agent} did not change its key to that one")
        unit.put(PINS, {**known, "thumbprint": given.thumbprint, "first_seen": unit.now, "changed_to": None})
        payload = {"agent": agent, "thumbprint": given.thumbprint, "how": "confirmed", "before": known["thumbprint"]}
        kernel.ledger.entry(unit, ENTRY_KIND, operation.principal.id, payload, subject=agent)
        return {"agent": agent, "thumbprint": given.thumbprint, "confirmed": True}

    return Object(
        key="PEER_KEY_CONFIRM",
        summary="Believe the key an agent changed to without announcing it; ask its owner on another way first.",
        effect=Effect.EXECUTION,
        arguments=ChangedKey,
        runner=Inside(confirm),
        sensitive=True,
        listed=False,  # nothing but the owner's word opens what is not listed
        idempotent=False,
    )


def changed_keys() -> Check:
    """Tells ``doctor`` of keys that wait for the owner's word."""

    async def look(node: Node) -> str | None:
        asked = "select agent, changed_to from wellknown_pin where changed_to is not null order by agent limit 5"
        found = await node.database.read(lambda reader: reader.all(asked))
        waiting = ", ".join(f"{row.agent} ({row.changed_to})" for row in found)
        return f"changed their key unannounced: {waiting}" if waiting else None

    return Check(
        id="wellknown.changed_keys",
        looks_at="agents whose key changed without being announced beside the old one",
        remedy="ask the agent's owner on another way, then run PEER_KEY_CONFIRM",
        look=look,
    )
