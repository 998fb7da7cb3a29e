"""Signs, verifies and agrees: ES256 for envelopes, Ed25519 for the ledger, and the files private keys live in.

Implements ES256 (RFC 7518 §3.4, raw ``r‖s``; nonces by RFC 6979), ECDH on P-256, Ed25519 (RFC 8032) and private JWK
files. A public key that has been read is kept by its point: it cannot change, and reading it costs a tenth of a
verification.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from nacl.bindings import crypto_core_ed25519_is_valid_point
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from deedbox.canonical import admit, b64url
from deedbox.clock import Entropy
from deedbox.identity import jwk as jwks
from deedbox.identity.jwk import Jwk, bad_key
from deedbox.refusals import Fault, Refusal

SIGNATURE_SIZE: Final = 64
KEYS_REMEMBERED: Final = 4096

_P256: Final = ec.SECP256R1()
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_VERIFYING: Final = ec.ECDSA(SHA256())
_SIGNING: Final = ec.ECDSA(SHA256(), deterministic_signing=True)
_AGREEING: Final = ec.ECDH()


class P256Public:
    """A P-256 key somebody publishes: verifies their signatures, and is what a body is sealed to."""

    __slots__ = ("_key", "point", "thumbprint")

    def __init__(self, point: bytes) -> None:
        try:
            self._key = ec.EllipticCurvePublicKey.from_encoded_point(_P256, point)
        except ValueError:
            raise bad_key("not a point of P-256") from None
        self.point = point
        self.thumbprint = jwks.thumbprint(jwks.p256_jwk(point))

    @classmethod
    def from_jwk(cls, jwk: Any) -> P256Public:
        """Reads a published JWK; raises :class:`Refusal` ``bad_key`` or ``private_key_published``."""
        return _p256_public(jwks.p256_point(jwk))

    @property
    def jwk(self) -> Jwk:
        """The public JWK, encoded by us."""
        return jwks.p256_jwk(self.point)

    def verify(self, signature: bytes, data: bytes) -> bool:
        """Whether the 64 bytes ``r‖s`` are this key's ES256 signature of ``data``; any other size is not."""
        if len(signature) != SIGNATURE_SIZE:
            return False
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        try:
            self._key.verify(encode_dss_signature(r, s), data, _VERIFYING)
        except InvalidSignature:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, P256Public) and self.point == other.point

    def __hash__(self) -> int:
        return hash(self.point)

    def __repr__(self) -> str:
        return f"P256Public({self.thumbprint})"


class P256Pair:
    """A P-256 key of our own. Its printed form shows the public half only."""

    __slots__ = ("_key", "public")

    def __init__(self, scalar: int) -> None:
        if not 0 < scalar < _P256_ORDER:
            raise bad_key("the private scalar is out of range")
        self._key = ec.derive_private_key(scalar, _P256)
        numbers = self._key.public_key().public_numbers()
        self.public = _p256_public(b"\x04" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big"))

    @classmethod
    def generate(cls, entropy: Entropy = os.urandom) -> P256Pair:
        """A new pair; sixteen bytes more than needed make the reduction fair (FIPS 186-5 A.2.1)."""
        return cls(int.from_bytes(entropy(48), "big") % (_P256_ORDER - 1) + 1)

    @classmethod
    def from_jwk(cls, jwk: Any) -> P256Pair:
        """Reads a private JWK; raises :class:`Refusal` ``bad_key``, also if the two halves do not belong together."""
        public, scalar = jwks.split_private(jwk)
        point = jwks.p256_point(public)
        pair = cls(int.from_bytes(scalar, "big"))
        if pair.public.point != point:
            raise bad_key("the public half is not the private half's")
        return pair

    def sign(self, data: bytes) -> bytes:
        """The 64 bytes ``r‖s``; the same for the same data, so no bad random number can give the key away."""
        r, s = decode_dss_signature(self._key.sign(data, _SIGNING))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def agree(self, other: P256Public) -> bytes:
        """The 32-byte x-coordinate of the ECDH secret with another key."""
        return self._key.exchange(_AGREEING, other._key)

    def private_jwk(self) -> Jwk:
        """The whole key, for its file and for nothing else."""
        return self.public.jwk | {"d": b64url(self._key.private_numbers().private_value.to_bytes(32, "big"))}

    def __repr__(self) -> str:
        return f"P256Pair({self.public.thumbprint})"


class Ed25519Public:
    """An Ed25519 key. One of small order would verify one signature for every message, so none gets this far."""

    __slots__ = ("_key", "point", "thumbprint")

    def __init__(self, point: bytes) -> None:
        if len(point) != jwks.COORDINATE:
            raise bad_key("an Ed25519 key is 32 bytes")
        if not crypto_core_ed25519_is_valid_point(point):
            raise Refusal("weak_key", 400, "not the canonical encoding of a point of the prime-order group")
        self._key = VerifyKey(point)
        self.point = point
        self.thumbprint = jwks.thumbprint(jwks.ed25519_jwk(point))

    @classmethod
    def from_bytes(cls, point: bytes) -> Ed25519Public:
        """Reads the 32-byte encoding; raises :class:`Refusal` ``bad_key`` or ``weak_key``."""
        return _ed25519_public(point)

    @classmethod
    def from_jwk(cls, jwk: Any) -> Ed25519Public:
        """Reads a published JWK; raises as :meth:`from_bytes`, or ``private_key_published``."""
        return _ed25519_public(jwks.ed25519_point(jwk))

    @property
    def jwk(self) -> Jwk:
        """The public JWK, encoded by us."""
        return jwks.ed25519_jwk(self.point)

    def verify(self, signature: bytes, data: bytes) -> bool:
        """Whether the 64 bytes are this key's signature of ``data``."""
        if len(signature) != SIGNATURE_SIZE:
            return False
        try:
            self._key.verify(data, signature)
        except BadSignatureError:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ed25519Public) and self.point == other.point

    def __hash__(self) -> int:
        return hash(self.point)

    def __repr__(self) -> str:
        return f"Ed25519Public({self.thumbprint})"


class Ed25519Pair:
    """An Ed25519 key of our own. Its printed form shows the public half only."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != jwks.COORDINATE:
            raise bad_key("an Ed25519 seed is 32 bytes")
        self._key = SigningKey(seed)
        self.public = _ed25519_public(bytes(self._key.verify_key))

    @classmethod
    def from_seed(cls, seed: bytes) -> Ed25519Pair:
        """The pair of a 32-byte seed (RFC 8032 §5.1.5)."""
        return cls(seed)

    @classmethod
    def generate(cls, entropy: Entropy = os.urandom) -> Ed25519Pair:
        """A new pair."""
        return cls(entropy(jwks.COORDINATE))

    @classmethod
    def from_jwk(cls, jwk: Any) -> Ed25519Pair:
        """Reads a private JWK; raises :class:`Refusal` ``bad_key``, also if the two halves do not belong together."""
        public, seed = jwks.split_private(jwk)
        point = jwks.ed25519_point(public)
        pair = cls(seed)
        if pair.public.point != point:
            raise bad_key("the public half is not the private half's")
        return pair

    def sign(self, data: bytes) -> bytes:
        """The 64-byte signature."""
        return self._key.sign(data).signature

    def private_jwk(self) -> Jwk:
        """The whole key, for its file and for nothing else."""
        return self.public.jwk | {"d": b64url(bytes(self._key))}

    def __repr__(self) -> str:
        return f"Ed25519Pair({self.public.thumbprint})"


Pair = P256Pair | Ed25519Pair

_p256_public = lru_cache(maxsize=KEYS_REMEMBERED)(P256Public)
_ed25519_public = lru_cache(maxsize=KEYS_REMEMBERED)(Ed25519Public)


# --- files -------------------------------------------------------------------------------------------------------


def store_pair(path: Path, pair: Pair) -> None:
    """Writes a private key to a new file only its owner can read, in a folder only its owner can enter.

    Raises :class:`Refusal` ``key_file_exists`` (a key is never overwritten) or ``key_file_exposed``.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _only_owner(path.parent.stat().st_mode, path.parent, "700")
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _key_file("key_file_exists", f"{path.name} exists already", "Move the old key away first.") from None
    with open(file, "wb") as out:
        out.write(orjson.dumps(pair.private_jwk()) + b"\n")
        out.flush()
        os.fsync(out.fileno())


def load_pair(path: Path) -> Pair:
    """Reads a private key from its file.

    Raises :class:`Refusal` ``key_file_missing``, ``key_file_exposed`` (others may read it) or ``bad_key``.
    """
    try:
        with path.open("rb") as file:
            _only_owner(os.fstat(file.fileno()).st_mode, path, "600")
            raw = file.read()
    except FileNotFoundError:
        raise _key_file("key_file_missing", f"no key at {path.name}", "restore the folder of keys") from None
    try:
        jwk = admit(raw, limit=4096)
    except Refusal:
        raise bad_key(f"{path.name} is not a JWK") from None
    is_ed25519 = isinstance(jwk, dict) and jwk.get("kty") == "OKP"
    return Ed25519Pair.from_jwk(jwk) if is_ed25519 else P256Pair.from_jwk(jwk)


def _only_owner(mode: int, path: Path, wanted: str) -> None:
    if mode & 0o077:
        raise _key_file("key_file_exposed", f"others have access to {path.name}", f"chmod {wanted} {path}")


def _key_file(code: str, detail: str, next_step: str) -> Refusal:
    return Refusal(code, 500, detail, next_step=next_step, fault=Fault.OURS)
