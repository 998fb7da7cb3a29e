"""The judge's own reading of the wire, so that one mistake cannot hide in the node and in its judge.

Canonical JSON (RFC 8785, OIP 1.2 §2), P-256 keys (RFC 7518 §6.2), ES256 signatures (RFC 7518 §3.4, OIP 1.2 §5), sealed
bodies (OIP 1.2 §6) and the envelope `oip-message/1` (OIP 1.2 §4).
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NoReturn, TypeAlias

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Envelope: TypeAlias = dict[str, Json]

PROTOCOL: Final = "oip-message/1"
KINDS: Final = ("query", "propose", "invoke", "result", "event", "cancel", "error")
SEAL: Final = "ECDH-P256-A256GCM"
MAX_SAFE: Final = 2**53 - 1
P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

_B64URL = re.compile(r"[A-Za-z0-9_-]*")
_UTC_Z = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class NotCanonical(ValueError):
    """The text or value has no canonical form: it is not I-JSON (RFC 7493)."""


class NotOpened(ValueError):
    """A sealed body could not be opened with this key."""


# --- JSON ------------------------------------------------------------------------------------------------


def parse(text: bytes | str) -> Json:
    """I-JSON, or :class:`NotCanonical`: UTF-8, no duplicate names, no lone surrogates, no number a double blurs."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value: Json = json.loads(decoded, object_pairs_hook=_unique, parse_constant=_refuse_constant)
        canonical(value)
    except (ValueError, RecursionError) as problem:
        raise NotCanonical(str(problem)) from problem
    return value


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotCanonical("a member name occurs twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise NotCanonical(f"{name} is no JSON number")


def canonical(value: Json) -> bytes:
    """The bytes that are hashed and signed (RFC 8785 §3.2)."""
    try:
        return _text(value).encode("utf-8")
    except UnicodeEncodeError as problem:
        raise NotCanonical("a lone surrogate has no UTF-8 form") from problem


def _text(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))  # RFC 8785 §3.2.3
    return "{" + ",".join(f"{_text(name)}:{_text(value[name])}" for name in names) + "}"


def _number(value: int | float) -> str:
    """ECMA-262 Number::toString (RFC 8785 §3.2.2.3)."""
    if isinstance(value, int):
        if abs(value) > MAX_SAFE:
            raise NotCanonical("an integer beyond 2^53-1 is not the same number everywhere")
        return str(value)
    if not math.isfinite(value):
        raise NotCanonical("a number is not finite")
    if value == 0:
        return "0"
    sign, raw, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, raw))
    point = len(digits) + int(exponent)
    return ("-" if sign else "") + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Digits with their decimal point, in the layout of ECMA-262."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{mantissa}e{point - 1:+d}"


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64url(text: object) -> bytes:
    """The bytes of unpadded base64url (RFC 4648 §5), else ``ValueError``."""
    if not isinstance(text, str) or not _B64URL.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError("not base64url")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# --- time ------------------------------------------------------------------------------------------------


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def utc_z(instant: int) -> str:
    """``2026-01-02T03:04:05.678Z`` of milliseconds since the epoch (OIP 1.2 §1.3)."""
    moment = datetime.fromtimestamp(instant / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant % 1000:03d}Z"


def instant_of(text: Json) -> int | None:
    """Milliseconds of a UTC-Z timestamp, or ``None`` if it is not exactly of that family."""
    if not isinstance(text, str) or not _UTC_Z.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)


# --- keys ------------------------------------------------------------------------------------------------


class PrivateKey:
    """A P-256 pair that signs and opens, as an agent's one key does (OIP 1.2 §3.2)."""

    def __init__(self, secret: ec.EllipticCurvePrivateKey) -> None:
        self._secret = secret

    @classmethod
    def generate(cls) -> PrivateKey:
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Json]) -> PrivateKey:
        numbers = public_key(jwk).public_numbers()
        return cls(ec.EllipticCurvePrivateNumbers(int.from_bytes(unb64url(jwk["d"])), numbers).private_key())

    @property
    def jwk(self) -> dict[str, Json]:
        """The public half, exactly ``kty``, ``crv``, ``x``, ``y``."""
        numbers = self._secret.public_key().public_numbers()
        x, y = (b64url(part.to_bytes(32)) for part in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y}

    def sign(self, message: bytes) -> bytes:
        """64 bytes, r then s."""
        r, s = utils.decode_dss_signature(self._secret.sign(message, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)

    def agree(self, other: Mapping[str, Json]) -> bytes:
        """The AES key shared with the holder of *other* (OIP 1.2 §6.2)."""
        return hashlib.sha256(self._secret.exchange(ec.ECDH(), public_key(other))).digest()


def public_key(jwk: Mapping[str, Json]) -> ec.EllipticCurvePublicKey:
    """A point on the curve, else ``ValueError``."""
    if jwk.get("kty") != "EC" or jwk.get("crv") != "P-256":
        raise ValueError("not a P-256 key")
    x, y = unb64url(jwk.get("x")), unb64url(jwk.get("y"))
    if len(x) != 32 or len(y) != 32:
        raise ValueError("a coordinate is not 32 bytes long")
    return ec.EllipticCurvePublicNumbers(int.from_bytes(x), int.from_bytes(y), ec.SECP256R1()).public_key()


def signature_holds(jwk: Mapping[str, Json], message: bytes, value: Json) -> bool:
    """ES256 over *message*; anything that is not 64 bytes of base64url does not hold."""
    try:
        raw = unb64url(value)
        if len(raw) != 64:
            return False
        der = utils.encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
        public_key(jwk).verify(der, message, ec.ECDSA(hashes.SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return True


# --- envelopes -------------------------------------------------------------------------------------------


def new_id(prefix: str, size: int = 12) -> str:
    return f"{prefix}_{b64url(os.urandom(size))}"


def draft(kind: str, sender: str, recipient: str, body: Json, *, ttl: int = 300, **members: Json) -> Envelope:
    """An unsigned envelope of *ttl* seconds; *members* override what is made here, or add to it."""
    created = now_ms()
    envelope: Envelope = {
        "protocol": PROTOCOL,
        "id": new_id("msg"),
        "conversation": new_id("conv", 9),
        "in_reply_to": None,
        "kind": kind,
        "from": sender,
        "to": recipient,
        "created_at": utc_z(created),
        "expires_at": utc_z(created + ttl * 1000),
        "body": body,
        "capability": None,
    }
    envelope["body_sha256"] = body_hash(envelope)
    return envelope | members


def body_hash(envelope: Mapping[str, Json]) -> str:
    """Of the sealed block if there is one, else of the body (OIP 1.2 §4.1)."""
    content = envelope.get("enc") or envelope.get("body")
    return sha256_hex(canonical({} if content is None else content))


def preimage(envelope: Mapping[str, Json]) -> bytes:
    return canonical({name: value for name, value in envelope.items() if name != "signature"})


def signed(envelope: Envelope, key: PrivateKey, kid: str | None = None) -> Envelope:
    """The same envelope with its signature (OIP 1.2 §5.1)."""
    unsigned = {name: value for name, value in envelope.items() if name != "signature"}
    value = b64url(key.sign(canonical(unsigned)))
    return unsigned | {"signature": {"alg": "ES256", "kid": kid or envelope["from"], "value": value}}


def sealed(envelope: Envelope, recipient: Mapping[str, Json], ephemeral: PrivateKey | None = None) -> Envelope:
    """The envelope with its body closed to all but the holder of *recipient*'s key; not yet signed (OIP 1.2 §6)."""
    pair, iv = ephemeral or PrivateKey.generate(), os.urandom(12)
    body = envelope["body"]
    clear = canonical({} if body is None else body)
    cipher = AESGCM(pair.agree(recipient)).encrypt(iv, clear, None)
    enc: Json = {"alg": SEAL, "epk": pair.jwk, "iv": b64url(iv), "ciphertext": b64url(cipher)}
    closed = envelope | {"body": None, "enc": enc}
    return closed | {"body_sha256": body_hash(closed)}


def opened(envelope: Mapping[str, Json], key: PrivateKey) -> Json:
    """The clear body of a sealed envelope, or :class:`NotOpened`."""
    enc = envelope.get("enc")
    if not isinstance(enc, dict) or enc.get("alg") != SEAL:
        raise NotOpened("no sealed block of a known kind")
    epk = enc.get("epk")
    try:
        secret = key.agree(epk if isinstance(epk, dict) else {})
        clear = AESGCM(secret).decrypt(unb64url(enc.get("iv")), unb64url(enc.get("ciphertext")), None)
        return parse(clear)
    except (ValueError, InvalidTag) as problem:
        raise NotOpened("the sealed block does not open with this key") from problem
