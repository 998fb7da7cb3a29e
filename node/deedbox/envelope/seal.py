"""Signs envelopes and verifies them; seals bodies and opens them.

Implements OIP 1.2 §5 (ES256 over the canonical envelope, and the order of the checks) and §6 (ECDH-P256-A256GCM),
with the binding of §6.7: a sealed body says inside for whom it was sealed, so that nobody can hand it on as theirs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Unpack

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from deedbox.canonical import admit, b64url, canonical, sha256_hex, unb64url
from deedbox.envelope.message import (
    MAX_BODY,
    MAX_CAPABILITY,
    Draft,
    Envelope,
    Unsigned,
    compose,
    splice_signature,
)
from deedbox.identity.keys import P256Pair, P256Public
from deedbox.refusals import Refusal

SIGNING: Final = "ES256"
SEALING: Final = "ECDH-P256-A256GCM"
BINDING: Final = "_oip"
NONCE_SIZE: Final = 12
TAG_SIZE: Final = 16


# --- signatures --------------------------------------------------------------------------------------------------


def sign(members: dict[str, Any], pair: P256Pair, kid: str) -> dict[str, Any]:
    """The envelope with its signature, replacing one it may carry; ``kid`` is the signer's agent id."""
    unsigned = {name: member for name, member in members.items() if name != "signature"}
    value = b64url(pair.sign(canonical(unsigned)))
    return unsigned | {"signature": {"alg": SIGNING, "kid": kid, "value": value}}


def sign_bytes(unsigned: bytes, pair: P256Pair, kid: str) -> bytes:
    """The signed wire bytes of a canonical unsigned envelope, which is not printed again."""
    return splice_signature(unsigned, kid, b64url(pair.sign(unsigned)))


def verify(
    envelope: Envelope,
    key: P256Public | None,
    *,
    now: int,
    keys_by_kid: Mapping[str, P256Public] | None = None,
) -> None:
    """Proves that the sender's key signed an envelope that is still alive, in the order of OIP 1.2 §5.2.

    ``key`` is the sender's published key, ``None`` if it could not be had; ``keys_by_kid`` further keys of *that*
    agent by the ids its document lists. Raises :class:`Refusal` 401 with the reason as its code.
    """
    verify_content(envelope, now=now)
    signature = envelope.signature or {}
    value = signature.get("value")
    if signature.get("alg") != SIGNING or not isinstance(value, str) or not value:
        raise _unproven("missing_signature", "no ES256 signature")
    kid = envelope.kid or ""
    if kid.lower() != envelope.sender:
        if kid not in (keys_by_kid or {}):
            raise _unproven("key_not_of_sender", "the signature names a key that is not the sender's")
        key = (keys_by_kid or {})[kid]
    if key is None:
        raise _unproven("sender_key_unresolved", "the sender's key is not known")
    if not _signed_by(key, value, envelope.preimage()):
        raise _unproven("bad_signature", "the signature is not of this envelope by the sender's key")


def verify_content(envelope: Envelope, *, now: int) -> None:
    """What can be judged without any key: not expired, and the body is the one that was hashed (§5.2, rows 2 and 3)."""
    if envelope.expires_at <= now:
        raise _unproven("expired_envelope", "the envelope has expired")
    if sha256_hex(envelope.body_bytes) != envelope.body_sha256:
        raise _unproven("body_hash_mismatch", "body_sha256 is not the hash of the body")


def _signed_by(key: P256Public, value: str, data: bytes) -> bool:
    try:
        signature = unb64url(value)
    except Refusal:
        return False
    return key.verify(signature, data)


def _unproven(reason: str, detail: str) -> Refusal:
    return Refusal(reason, 401, detail)


# --- sealed bodies -----------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """A sealed body in the clear: without its binding, which was there or not, and the token it may have carried."""

    body: dict[str, Any]
    bound: bool
    capability: str | None


def seal_body(
    body: dict[str, Any] | None,
    recipient: P256Public,
    *,
    sender: str,
    recipient_id: str,
    message_id: str,
    ephemeral: P256Pair | None = None,
    iv: bytes | None = None,
    capability: str | None = None,
) -> dict[str, Any]:
    """The ``enc`` member for a body, bound to this sender, recipient and message.

    ``capability`` travels inside, out of sight of the carriers. A new ephemeral key and nonce are made unless given.
    """
    binding: dict[str, Any] = {"from": sender, "to": recipient_id, "id": message_id}
    if capability:
        binding["capability"] = capability
    plaintext = canonical((body or {}) | {BINDING: binding})
    return seal_bytes(plaintext, recipient, ephemeral=ephemeral or P256Pair.generate(), iv=iv or os.urandom(NONCE_SIZE))


def seal_bytes(plaintext: bytes, recipient: P256Public, *, ephemeral: P256Pair, iv: bytes) -> dict[str, Any]:
    """The ``enc`` member for plaintext bytes (§6.1, §6.2); ``ephemeral`` and 12-byte ``iv`` serve one message only."""
    if len(iv) != NONCE_SIZE:
        raise ValueError("a nonce is 12 bytes")
    ciphertext = AESGCM(_key(ephemeral, recipient)).encrypt(iv, plaintext, None)
    return {"alg": SEALING, "epk": ephemeral.public.jwk, "iv": b64url(iv), "ciphertext": b64url(ciphertext)}


def compose_sealed(key: P256Public, **draft: Unpack[Draft]) -> Unsigned:
    """Builds an envelope whose body is sealed to the recipient's key (§6.4); randomness is the draft's ``ids``."""
    ids = draft["ids"]
    message_id = draft.get("id") or ids.new("msg", draft["now"])
    draft["enc"] = seal_body(
        draft["body"],
        key,
        sender=draft["sender"],
        recipient_id=draft["recipient"],
        message_id=message_id,
        ephemeral=P256Pair.generate(ids.secret),
        iv=ids.secret(NONCE_SIZE),
    )
    draft["id"], draft["body"] = message_id, None
    return compose(**draft)


def open_body(enc: Any, pair: P256Pair, *, sender: str, recipient: str, message_id: str) -> Opened:
    """Opens the sealed body of an envelope whose signature has been verified, and of no other (§6.7).

    Raises :class:`Refusal` 400 ``decrypt_failed``, or ``decrypt_refused`` if the body was sealed for another message.
    """
    body = _plain_body(_decrypt(enc, pair))
    binding = body.pop(BINDING, None)
    if binding is None:
        return Opened(body, False, None)
    if not isinstance(binding, dict) or _bound_to(binding) != (sender.lower(), recipient.lower(), message_id):
        raise Refusal("decrypt_refused", 400, "binding_mismatch: the body was sealed for another message")
    capability = binding.get("capability")
    if not isinstance(capability, str) or not 0 < len(capability) <= MAX_CAPABILITY:
        capability = None
    return Opened(body, True, capability)


def block_id(enc: Any) -> str:
    """What a sealed block is known again by, however it is written: SHA-256 of nonce and ciphertext; empty for none.

    The block's own hash would not do (§6.7): a further member changes it, and so does the other of the two ephemeral
    points with one x-coordinate, and either opens just the same.
    """
    try:
        return sha256_hex(unb64url(enc["iv"]) + unb64url(enc["ciphertext"]))
    except (Refusal, KeyError, TypeError):
        return ""


def _bound_to(binding: dict[str, Any]) -> tuple[str, str, str]:
    return str(binding.get("from")).lower(), str(binding.get("to")).lower(), str(binding.get("id"))


def _key(pair: P256Pair, other: P256Public) -> bytes:
    """SHA-256 of the shared x-coordinate: no salt, no info (§6.2)."""
    return hashlib.sha256(pair.agree(other)).digest()


def _decrypt(enc: Any, pair: P256Pair) -> bytes:
    if not isinstance(enc, dict) or enc.get("alg") != SEALING:
        raise _unopened("not an ECDH-P256-A256GCM block")
    try:
        ephemeral = P256Public.from_jwk(enc.get("epk"))
        iv, ciphertext = unb64url(enc.get("iv", "")), unb64url(enc.get("ciphertext", ""))
    except Refusal as why:
        raise _unopened(why.detail) from None
    if len(iv) != NONCE_SIZE or len(ciphertext) < TAG_SIZE:
        raise _unopened("iv or ciphertext has the wrong size")
    try:
        return AESGCM(_key(pair, ephemeral)).decrypt(iv, ciphertext, None)
    except InvalidTag:
        raise _unopened("the block does not open with this key") from None


def _plain_body(plaintext: bytes) -> dict[str, Any]:
    try:
        body = admit(plaintext, limit=MAX_BODY)
    except Refusal as why:
        raise _unopened(f"the sealed text is refused: {why.code}") from None
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise _unopened("the sealed body is not an object")
    return body


def _unopened(detail: str) -> Refusal:
    return Refusal("decrypt_failed", 400, detail)
