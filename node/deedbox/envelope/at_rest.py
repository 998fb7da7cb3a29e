"""Keeps what waits in the outbox unreadable in a copy of the database: a capability in it must be of no use (fed:E5).

AES-256-GCM under a key derived by HKDF (RFC 5869) from the ledger's private key, which lies in a file beside it.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from deedbox.canonical import b64url, unb64url
from deedbox.clock import Entropy
from deedbox.identity.keys import Ed25519Pair
from deedbox.refusals import Fault, Refusal

PURPOSE: Final = b"deedbox/outbox-at-rest/1"
NONCE_SIZE: Final = 12


def lock(pair: Ed25519Pair, content: bytes, name: str, entropy: Entropy) -> str:
    """The content as text that only a holder of the key reads, and only under the same ``name``."""
    nonce = entropy(NONCE_SIZE)
    return b64url(nonce + _cipher(pair).encrypt(nonce, content, name.encode()))


def unlock(pair: Ed25519Pair, locked: str, name: str) -> bytes:
    """What was locked; refuses ``contents_unreadable`` if the key is another one now, or the text was changed."""
    try:
        raw = unb64url(locked)
        return _cipher(pair).decrypt(raw[:NONCE_SIZE], raw[NONCE_SIZE:], name.encode())
    except (InvalidTag, ValueError, Refusal):
        raise Refusal(
            "contents_unreadable", 500, "the contents were kept under another key", fault=Fault.OURS
        ) from None


def _cipher(pair: Ed25519Pair) -> AESGCM:
    secret = unb64url(str(pair.private_jwk()["d"]))
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=PURPOSE).derive(secret))
