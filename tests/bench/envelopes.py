"""Signed envelopes for the load, from a few agents of one made-up domain, and the document that publishes their keys.

Implements what a sender needs of OIP 1.2: the envelope (§4), its signature (§5) and the well-known document (§7.1).
It imports nothing from the node, so that a mistake there cannot flatter the figures.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Mapping
from functools import cache

import orjson
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

DOMAIN = "peer.test"
SENDERS = tuple(f"{name}@{DOMAIN}" for name in ("alice", "bruno", "chiara", "dmitri"))
LIFETIME_SECONDS = 900  # OIP §4.1: the longest a builder may ask for

ES256 = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_TEXT = (
    "Do you keep the minutes of the harbour board for the spring session? We are looking for the vote on the new "
    "mooring fees, who spoke against it, and whether the ferry line was asked. A page number would do, a copy "
    "would be better; nothing has to be done on your side beyond telling us what you hold."
)


@cache
def private_key(agent: str) -> ec.EllipticCurvePrivateKey:
    """The agent's P-256 key: derived from its name, so that both ends of a run agree without exchanging a secret."""
    number = int.from_bytes(hashlib.sha256(f"bench {agent}".encode()).digest(), "big")
    return ec.derive_private_key(number % (_P256_ORDER - 1) + 1, ec.SECP256R1())


def public_jwk(agent: str) -> dict[str, str]:
    """The published half: exactly ``kty, crv, x, y`` (OIP §3.2)."""
    point = private_key(agent).public_key().public_numbers()
    x, y = (b64url(number.to_bytes(32, "big")) for number in (point.x, point.y))
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y}


def directory_document() -> bytes:
    """The senders' ``/.well-known/oip.json`` (OIP §7.1)."""
    inbox = f"https://{DOMAIN}/oip/inbox"
    agents = [{"id": agent, "alg": "ES256", "public_key_jwk": public_jwk(agent), "inbox": inbox} for agent in SENDERS]
    document = {"protocol": "oip-message/1", "domain": DOMAIN, "transport": "https", "agents": agents}
    return orjson.dumps(document | {"ledger": f"https://{DOMAIN}/oip/ledger", "spec": inbox})


def b64url(raw: bytes) -> str:
    """RFC 4648 §5 without padding (OIP §1.1)."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unb64url(text: str) -> bytes:
    """The bytes of unpadded base64url text."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def utc_z(epoch_ms: int) -> str:
    """Milliseconds since the epoch as ``2026-01-02T03:04:05.678Z`` (OIP §1.3)."""
    seconds, millis = divmod(epoch_ms, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{millis:03d}Z"


def canonical(value: object) -> bytes:
    """Canonical JSON of values known to be plain: ASCII member names, no floats, small integers (OIP §2)."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def sign(preimage: bytes, key: ec.EllipticCurvePrivateKey) -> str:
    """ES256 over the preimage as the 86 characters of ``r‖s`` (OIP §3.3)."""
    r, s = decode_dss_signature(key.sign(preimage, ES256))
    return b64url(r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def der_signature(value: str) -> bytes:
    """The DER form which ``cryptography`` verifies; ``ValueError`` unless it holds exactly 64 bytes."""
    raw = unb64url(value)
    if len(raw) != 64:
        raise ValueError("an ES256 signature has 64 bytes")
    return encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))


def query(sender: str, recipient: str, number: int) -> dict[str, object]:
    """An unsigned ``query`` of ordinary size: about 900 bytes once signed."""
    body = {"text": _TEXT, "asked_at": utc_z(time.time_ns() // 1_000_000), "number": number}
    return _envelope("query", sender, recipient, body, None)


def invoke(sender: str, recipient: str, number: int, key: str, capability: str) -> dict[str, object]:
    """An unsigned ``invoke`` of one object under a capability (OIP §4.2)."""
    return _envelope("invoke", sender, recipient, {"key": key, "args": f"{number} {_TEXT}"}, capability)


def signed(envelope: Mapping[str, object]) -> bytes:
    """The envelope with its sender's signature, compact, as it goes over the wire."""
    sender = str(envelope["from"])
    signature = {"alg": "ES256", "kid": sender, "value": sign(canonical(envelope), private_key(sender))}
    return orjson.dumps({**envelope, "signature": signature})


def _envelope(kind: str, sender: str, recipient: str, body: object, capability: str | None) -> dict[str, object]:
    now = time.time_ns() // 1_000_000
    return {
        "protocol": "oip-message/1",
        "id": f"msg_{b64url(os.urandom(12))}",
        "conversation": f"conv_{b64url(os.urandom(9))}",
        "in_reply_to": None,
        "kind": kind,
        "from": sender,
        "to": recipient,
        "created_at": utc_z(now),
        "expires_at": utc_z(now + LIFETIME_SECONDS * 1000),
        "body": body,
        "capability": capability,
        "body_sha256": hashlib.sha256(canonical(body)).hexdigest(),
    }
