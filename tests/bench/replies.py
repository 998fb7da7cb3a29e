"""Judges the replies of a run after its clock has stopped: a fast wrong answer is no answer.

Every reply must be a ``result`` to its own request (OIP §8.5); one in a hundred is also checked for its body hash
and, where the key is known, its signature (OIP §5.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from tests.bench.envelopes import canonical, der_signature, unb64url

_EVERY = 100
_ES256 = ec.ECDSA(hashes.SHA256())


def judge_replies(
    replies: Mapping[int, bytes], ids: list[str], recipient: str, jwk: Mapping[str, str] | None
) -> list[str]:
    """What is wrong, a line a reply; empty when all are right. ``replies`` maps the request's number to its reply."""
    key = None if jwk is None else public_key(jwk)
    found = [_fault(raw, ids[number], recipient) for number, raw in replies.items()]
    found += [_deep_fault(raw, key) for number, raw in replies.items() if number % _EVERY == 0]
    return [fault for fault in found if fault is not None]


def public_key(jwk: Mapping[str, str]) -> ec.EllipticCurvePublicKey:
    """The P-256 key of a published JWK (OIP §3.2)."""
    x, y = (int.from_bytes(unb64url(jwk[name]), "big") for name in ("x", "y"))
    return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()


def _fault(raw: bytes, asked: str, recipient: str) -> str | None:
    try:
        reply = orjson.loads(raw)
    except ValueError:
        return f"not JSON: {raw[:80]!r}"
    told = (reply.get("kind"), reply.get("in_reply_to"), reply.get("from"))
    if told == ("result", asked, recipient):
        return None
    body = reply.get("body") or reply
    return f"kind {told[0]!r}, reason {body.get('reason') or body.get('error')!r}, in reply to {told[1]!r}"


def _deep_fault(raw: bytes, key: ec.EllipticCurvePublicKey | None) -> str | None:
    try:
        reply = orjson.loads(raw)
        signature = reply.pop("signature")
        if hashlib.sha256(canonical(reply["body"])).hexdigest() != reply["body_sha256"]:
            return "the reply's body hash is wrong"
        if key is not None:
            key.verify(der_signature(signature["value"]), canonical(reply), _ES256)
    except (InvalidSignature, ValueError, KeyError, TypeError) as error:
        return f"the reply does not verify: {type(error).__name__}"
    return None
