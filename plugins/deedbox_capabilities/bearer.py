"""A token as a credential: whoever holds it is `cap:` and its fingerprint (OIP 1.2 §14.6, §14.14; RFC 6750 §2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deedbox import Deny, Principal, Proof, Refusal, Unit
from deedbox_capabilities.gates import POLICY, record_of
from deedbox_capabilities.tables import CAPABILITIES
from deedbox_capabilities.tokens import Token, TokenKey

if TYPE_CHECKING:
    from deedbox import Intent, Node

HEADERS = ("x-write-token", "x-block-token")
SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token as it was presented; still unbelieved. Never printed."""

    token: str

    def __repr__(self) -> str:
        return "Bearer(…)"


def held(intent: Intent) -> str | None:
    """The token an intent holds up, whichever way it came."""
    credential = intent.credential
    return intent.token or (credential.token if isinstance(credential, Bearer) else None)


def corrupted() -> dict[str, Any]:
    """Members of the answer to a token that does not verify (OIP 1.2 §14.14)."""
    return {"can_act": False, "ran": False, "problem": "signature check failed", "fix": "copy the whole token"}


def expired() -> dict[str, Any]:
    """Members of the answer to a token whose time is over."""
    return {"can_act": False, "ran": False, "problem": "expired", "fix": "ask for a new one"}


def failure(token: Token | None, now: int) -> tuple[str, dict[str, Any]] | None:
    """What is wrong with a token before its record is looked at: the code and the members of the answer."""
    if token is None:
        return "token_corrupted", corrupted()
    return ("token_expired", expired()) if token.expired(now) else None


def denial(wrong: tuple[str, dict[str, Any]]) -> Deny:
    return Deny(wrong[0], 401, extra=wrong[1], policy=POLICY)


class BearerAuthenticator:
    """Believes tokens that verify and are recorded."""

    credential = Bearer

    def __init__(self, key: TokenKey) -> None:
        self._key = key

    def present(self, headers: Mapping[str, str]) -> Bearer | None:
        given = headers.get("authorization", "")
        candidates = [given[len(SCHEME) :].strip()] if given[: len(SCHEME)].lower() == SCHEME else []
        candidates += [headers[name] for name in HEADERS if name in headers]
        return next((Bearer(each) for each in candidates if each.startswith("sh.")), None)

    async def prepare(self, node: Node, intent: Intent) -> Proof:
        token = self._key.read(intent.credential.token)
        wrong = failure(token, intent.at)
        if token is None or wrong is not None:
            code, members = wrong or ("token_corrupted", corrupted())
            return Proof(refusal=Refusal(code, 401, extra=members))
        principal = Principal(f"cap:{token.fingerprint}", "bearer")
        return Proof(principal, asks=((CAPABILITIES, token.fingerprint),), found=token)

    def believe(self, unit: Unit, intent: Intent, proof: Proof) -> Principal:
        """A token without a record is somebody unrecognised; the gates will say so."""
        if proof.refusal is not None:
            raise proof.refusal
        row = record_of(unit, proof.found)
        return replace(proof.principal, recognised=True) if row is not None else proof.principal
