"""Reads keys as peers publish them, strictly, and writes ours the one way everybody reads.

Implements RFC 7517 (JWK), RFC 7518 §6.2 (EC, P-256 only), RFC 8037 (OKP, Ed25519 only) and RFC 7638 (thumbprints), as
OIP 1.2 §3.2 narrows them. Other members of a JWK (``use``, ``alg``, ``kid``, ``ext``, ``key_ops``) are ignored.
"""

from __future__ import annotations

from typing import Any, Final

from deedbox.canonical import b64url, sha256_digest, unb64url
from deedbox.refusals import Refusal

COORDINATE: Final = 32
"""Bytes of a P-256 coordinate or scalar, of an Ed25519 key and of its seed: 43 characters of base64url."""

Jwk = dict[str, str]


def bad_key(why: str) -> Refusal:
    """The refusal of something that is no key of the kind asked for."""
    return Refusal("bad_key", 400, why)


def p256_point(jwk: Any) -> bytes:
    """The 65-byte uncompressed point of a published P-256 key; whether it is on the curve is not yet known.

    Raises :class:`Refusal` ``bad_key``, or ``private_key_published`` if the private part is there for all to read.
    """
    members = _published(jwk, "EC", "P-256")
    return b"\x04" + _number(members, "x") + _number(members, "y")


def p256_jwk(point: bytes) -> Jwk:
    """The public JWK of an uncompressed point: exactly the four members of OIP 1.2 §3.2."""
    x, y = point[1 : 1 + COORDINATE], point[1 + COORDINATE :]
    return {"kty": "EC", "crv": "P-256", "x": b64url(x), "y": b64url(y)}


def ed25519_point(jwk: Any) -> bytes:
    """The 32-byte encoded point of a published Ed25519 key; refuses as :func:`p256_point` does."""
    return _number(_published(jwk, "OKP", "Ed25519"), "x")


def ed25519_jwk(point: bytes) -> Jwk:
    """The public JWK of an encoded Ed25519 point."""
    return {"kty": "OKP", "crv": "Ed25519", "x": b64url(point)}


def split_private(jwk: Any) -> tuple[Jwk, bytes]:
    """The public members of one of our own private JWKs, and the 32 bytes of its ``d``."""
    if not isinstance(jwk, dict):
        raise bad_key("a JWK is an object")
    return {name: item for name, item in jwk.items() if name != "d"}, _number(jwk, "d")


def thumbprint(jwk: Jwk) -> str:
    """RFC 7638: base64url SHA-256 over the required members in order of their names.

    Give it only what :func:`p256_jwk` or :func:`ed25519_jwk` made, never a peer's own text.
    """
    names = ("crv", "kty", "x", "y") if jwk["kty"] == "EC" else ("crv", "kty", "x")
    printed = ",".join(f'"{name}":"{jwk[name]}"' for name in names)
    return b64url(sha256_digest(f"{{{printed}}}".encode()))


def _published(jwk: Any, kty: str, crv: str) -> dict[str, Any]:
    if not isinstance(jwk, dict):
        raise bad_key("a JWK is an object")
    if "d" in jwk:
        raise Refusal(
            "private_key_published",
            400,
            "the published key holds its private part",
            next_step="Treat the key as stolen: make a new one, and publish only kty, crv, x and y.",
        )
    if jwk.get("kty") != kty or jwk.get("crv") != crv:
        raise bad_key(f"not a {kty} key on {crv}")
    return jwk


def _number(jwk: dict[str, Any], name: str) -> bytes:
    """A member that is 32 bytes, padded with zeros, and so 43 characters."""
    text = jwk.get(name)
    if not isinstance(text, str) or len(text) != 43:
        raise bad_key(f"{name} is not 43 characters of base64url")
    try:
        return unb64url(text)
    except Refusal:
        raise bad_key(f"{name} is not base64url") from None
