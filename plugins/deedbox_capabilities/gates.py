"""The tests a recorded grant must pass before anything runs under it, in the order of their answers.

Implements OIP 1.2 §8.4 (inside a signed message), §14.7 (record gates), §14.10 (uses), §16.5 (at a door).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deedbox import Allow, Deny, Object, Operation, Refusal, Unit
from deedbox.canonical import canonical
from deedbox.clock import utc_z
from deedbox_capabilities.chain import walk
from deedbox_capabilities.scopes import allows, audience_matches
from deedbox_capabilities.tables import CAPABILITIES
from deedbox_capabilities.tokens import Token

POLICY = "capability"
ASK_A_PERSON = "send a propose: the owner can run it"

Row = dict[str, Any]


@dataclass(slots=True)
class Use:
    """One use of a grant, spent in the unit that runs what it pays for; ``said`` is what the receipt says of it."""

    fingerprint: str
    said: dict[str, Any]

    @classmethod
    def of(cls, row: Row) -> Use:
        said = {
            "capability": row["fingerprint"],
            "scope": row["scope"],
            "minted_for": row["actor"],
            "expires_at": utc_z(row["expires_at"]),
            "audience": row["audience"],
        }
        return cls(row["fingerprint"], said)

    def apply(self, unit: Unit) -> None:
        row = unit.fact(CAPABILITIES, self.fingerprint)
        if row is None:
            raise Refusal("capability_missing", 401, "the record is gone")
        unit.put(CAPABILITIES, {**row, "uses_consumed": row["uses_consumed"] + 1})

    def describe(self) -> dict[str, Any]:
        return self.said


def deny(reason: str, status: int, fingerprint: str = "", note: str = "", next_step: str = "") -> Deny:
    """A no that names the grant by its fingerprint."""
    extra = {"fingerprint": fingerprint} if fingerprint else {}
    return Deny(reason, status, note, next_step, extra, policy=POLICY)


def record_of(unit: Unit, token: Token) -> Row | None:
    """The record of a token, found by its fingerprint and held against what the token says (OIP 1.2 §29 W21)."""
    row = unit.fact(CAPABILITIES, token.fingerprint)
    if row is None or row["nonce"] != token.nonce or row["scope"] != token.scope:
        return None
    return row


def opens(scope: str, operation: Operation) -> bool:
    """Whether a scope opens the object that was named; what the node does not list, no token opens."""
    found = operation.object
    return allows(scope, operation.intent.object_key) and (found is None or found.listed)


def crossing(unit: Unit, operation: Operation, token: Token | None) -> Allow | Deny:
    """Gates 2 to 11 of an invoke in a signed message (OIP 1.2 §8.4); gate 1 is whether there was a token."""
    if token is None or token.expired(unit.now):
        return deny("capability_invalid", 401, note="the token does not verify, or its time is over")
    fingerprint = token.fingerprint
    row = record_of(unit, token)
    if row is None:
        return deny("capability_unrecorded", 401, fingerprint, "no record of this token")
    if not row["audience"]:
        return deny("audience_binding_required", 403, fingerprint, "bound to nobody, it cannot cross domains")
    principal = operation.principal
    if not principal.verified or not audience_matches(row["audience"], principal.id):
        return deny("audience_mismatch", 403, fingerprint, "made for another agent")
    if not opens(row["scope"], operation):
        return deny("scope_mismatch", 403, fingerprint, "live token, other object")
    chain = walk(unit, fingerprint)
    if not chain.live:
        return deny(chain.reason, 401, fingerprint, "the grant or one above it has ended")
    if operation.object is None:
        return deny("unknown_object", 404, fingerprint, "there is no such object here")
    return weigh(operation, operation.object, row)


def direct(unit: Unit, operation: Operation, found: Object[Any], token: Token) -> Allow | Deny:
    """The gates of a token held up at a door (OIP 1.2 §16.5): scope, chain, record, uses."""
    fingerprint = token.fingerprint
    if not opens(token.scope, operation):
        return deny("scope_mismatch", 401, fingerprint, "live token, other object")
    row = record_of(unit, token)
    if row is None:
        return deny("capability_missing", 401, fingerprint, "no record of this token")
    chain = walk(unit, fingerprint)
    if not chain.live:
        return deny(chain.reason, 401, fingerprint, "the grant or one above it has ended")
    if row["audience"]:
        note = "works only inside a verified signed invoke from this audience"
        return deny(f"audience_bound:{row['audience']}", 403, fingerprint, note)
    return weigh(operation, found, row)


def weigh(operation: Operation, found: Object[Any], row: Row) -> Allow | Deny:
    """The record gates after audience, then whether a use is left (OIP 1.2 §14.7, §14.10)."""
    fingerprint = row["fingerprint"]
    if row["owner_gate"]:
        return deny("owner_gate_required", 403, fingerprint, "explains only, until the owner runs it", ASK_A_PERSON)
    pinned = row["contract_hash"]
    if pinned and pinned != found.contract:
        return deny(f"contract_changed:{pinned}!={found.contract}", 409, fingerprint, "the object is not what it was")
    if found.sensitive and row["risk_ceiling"] != "high":
        return deny(f"risk_ceiling:{row['risk_ceiling']}<row:high", 403, fingerprint, "the object's risk is high")
    sent, fixed = text_of(operation.intent.arguments), row["body_fixed"]
    if fixed and sent and sent != fixed:
        return deny("body_not_allowed:fixed_body_only", 403, fingerprint, "leave the body empty")
    size, most = len((fixed or sent).encode()), row["max_body_bytes"]
    if 0 < most < size:
        return deny(f"payload_ceiling:{size}>{most}", 413, fingerprint, "the body is larger than the grant allows")
    spent = row["uses_consumed"] + row["uses_reserved"]
    if not operation.intent.dry and 0 < row["max_uses"] <= spent:
        return deny("token_exhausted", 429, fingerprint, "no use is left")
    return _allow(found, row, fixed)


def _allow(found: Object[Any], row: Row, fixed: str | None) -> Allow | Deny:
    try:
        arguments = found.accept(fixed) if fixed else None
    except Refusal as refusal:
        return deny(refusal.code, refusal.status, row["fingerprint"], "the fixed body does not fit the object any more")
    return Allow((Use.of(row),), arguments, policy=POLICY)


def text_of(given: Any) -> str:
    """Arguments as the text the wire counts: a string as it is, anything else in canonical form, nothing as nothing."""
    if isinstance(given, str):
        return given
    return canonical(given).decode() if given else ""
