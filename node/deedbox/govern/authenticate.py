"""Step 2, authenticate: *prepare* proves before the database, *believe* judges in the unit (decision 29)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox.identity.principal import ANONYMOUS, Anonymous, Internal, Principal
from deedbox.intent import Intent, Proof
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.storage.unit import Unit

NOTHING = Proof()


async def prepare(node: Node, intent: Intent) -> Proof:
    """Ask the authenticator of the credential's class; no credential proves nobody."""
    kind = type(intent.credential)
    if kind is Anonymous:
        return NOTHING
    if kind is Internal:
        return Proof(Principal(f"node:{intent.credential.cause}", "node", node.domain, recognised=True, verified=True))
    return await node.authenticator(kind).prepare(node, intent)


def believe(unit: Unit, node: Node, intent: Intent, proof: Proof) -> Principal:
    """Who is asking, or a refusal; nobody at all is ``anonymous`` and may ask for what is public."""
    kind = type(intent.credential)
    if kind is Anonymous:
        return ANONYMOUS
    if kind is Internal:
        return proof.principal
    try:
        return unit.guarded(node.authenticator(kind).believe, unit, intent, proof)
    except Refusal:
        raise
    except Exception:
        node.log.exception("authenticator_failed", credential=kind.__name__)
        raise Refusal("unauthenticated", 401, "the credential could not be judged") from None
