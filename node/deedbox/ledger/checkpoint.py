"""The signed head of the ledger: whoever holds one can tell later whether the ledger was cut or rewritten.

C2SP tlog-checkpoint in a C2SP signed note, log signatures of Ed25519 type ``01``, witnesses' cosignature/v1 of type
``04`` (C2SP tlog-cosignature)::

    example.com
    42
    <base64 of the 32-byte root>

    — example.com <base64 of 4 bytes of key id and 64 of signature>

A key id is the first four bytes of SHA-256(name ‖ newline ‖ type ‖ public key). Keys that sign come from elsewhere: a
``Sign`` function takes bytes and returns the 64-byte signature. Signatures of other types are kept and not judged.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deedbox.refusals import Refusal

ED25519 = 0x01
COSIGNATURE_V1 = 0x04
MAX_NOTE = 256 * 1024
MAX_SIGNATURES = 64
_DASH = "\u2014 "
_MAX_SIZE = 2**63 - 1

Sign = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key with the name and the signature type it is trusted for; as text, a C2SP *vkey*."""

    name: str
    public: bytes
    algorithm: int = ED25519

    def __post_init__(self) -> None:
        if not _is_key_name(self.name):
            raise _bad_key("a key's name is not empty and has neither spaces nor a plus sign")
        if self.algorithm in (ED25519, COSIGNATURE_V1) and len(self.public) != 32:
            raise _bad_key("an Ed25519 public key has 32 bytes")

    @property
    def key_id(self) -> bytes:
        """Four bytes that, with the name, tell which key signed."""
        return sha256(self.name.encode() + b"\n" + bytes([self.algorithm]) + self.public).digest()[:4]

    def __str__(self) -> str:
        encoded = base64.b64encode(bytes([self.algorithm]) + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """``name+keyid+base64``; a ``Refusal`` if the parts do not fit together."""
        name, _, rest = text.partition("+")
        key_id, _, encoded = rest.partition("+")
        raw = _unbase64(encoded)
        if raw is None or len(raw) < 2:
            raise _bad_key("a verifier key is written name+keyid+base64")
        key = cls(name, raw[1:], raw[0])
        if key.key_id.hex() != key_id:
            raise _bad_key("the key id belongs to another key")
        return key


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line: who says to have signed, and the bytes behind the key id."""

    name: str
    key_id: bytes
    blob: bytes

    def __str__(self) -> str:
        return f"{_DASH}{self.name} {base64.b64encode(self.key_id + self.blob).decode()}\n"

    @classmethod
    def parse(cls, line: str) -> NoteSignature:
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        raw = _unbase64(encoded)
        if not line.startswith(_DASH) or not _is_key_name(name) or raw is None or len(raw) < 5:
            raise _bad_note("a signature line is malformed")
        return cls(name, raw[:4], raw[4:])


@dataclass(frozen=True, slots=True)
class Signer:
    """A key whose signature held; ``timestamp`` in seconds since the epoch, for a cosignature."""

    key: VerifierKey
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """How many entries a ledger has and their root; ``origin`` is the node's domain."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        lines = (self.origin, *self.extensions)
        if not all(lines) or not _is_printable("".join(lines)):
            raise _bad_note("origin and extension lines are not empty and hold no control characters")
        if not 0 <= self.size <= _MAX_SIZE or len(self.root) != 32:
            raise _bad_note("a size counts from 0 and a root has 32 bytes")

    def body(self) -> str:
        """The text that is signed, with its final newline."""
        lines = (self.origin, str(self.size), base64.b64encode(self.root).decode(), *self.extensions)
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str) -> LedgerCheckpoint:
        """The checkpoint in a note's text; only the one spelling that ``body`` writes is taken."""
        origin, size, root, *extensions = [*text.removesuffix("\n").split("\n"), "", ""]
        decoded = _unbase64(root)
        if not (size.isascii() and size.isdigit() and len(size) <= 19) or decoded is None:
            raise _bad_note("a checkpoint has an origin, a size and a root")
        checkpoint = cls(origin, int(size), decoded, tuple(extensions[:-2]))
        if checkpoint.body() != text:
            raise _bad_note("the checkpoint is not spelled in the one allowed way")
        return checkpoint


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint with its signature lines; as text, the whole note."""

    checkpoint: LedgerCheckpoint
    signatures: tuple[NoteSignature, ...]

    def __str__(self) -> str:
        return f"{self.checkpoint.body()}\n{''.join(map(str, self.signatures))}"

    @classmethod
    def parse(cls, note: str | bytes) -> SignedCheckpoint:
        """Read a note; a ``Refusal`` if it is malformed. Nothing in it is believed before ``signers``."""
        if len(note) > MAX_NOTE:
            raise _bad_note("it is too long")
        try:
            text = (note.encode() if isinstance(note, str) else note).decode()
        except UnicodeError as error:
            raise _bad_note("it is not UTF-8") from error
        body, blank, signed = text.rpartition("\n\n")
        lines = signed.removesuffix("\n").split("\n")
        if not blank or not signed.endswith("\n") or len(lines) > MAX_SIGNATURES:
            raise _bad_note(f"it has a text, an empty line and 1 to {MAX_SIGNATURES} signature lines")
        return cls(LedgerCheckpoint.parse(f"{body}\n"), tuple(map(NoteSignature.parse, lines)))

    def signers(self, keys: Iterable[VerifierKey]) -> list[Signer]:
        """Which of the known keys signed. A line in a known key's name that does not verify is a ``Refusal``."""
        known = {(key.name, key.key_id): key for key in keys}
        found: list[Signer] = []
        for line in self.signatures:
            key = known.get((line.name, line.key_id))
            if key is not None and key.algorithm in (ED25519, COSIGNATURE_V1):
                found.append(_verified(self.checkpoint, line, key))
        return found

    def also(self, *signatures: NoteSignature) -> SignedCheckpoint:
        """The same checkpoint with more signatures, such as a witness's."""
        return replace(self, signatures=(*self.signatures, *signatures))


@dataclass(frozen=True, slots=True)
class WitnessPolicy:
    """How many of which witnesses must have cosigned: ``needed`` of ``keys``."""

    keys: tuple[VerifierKey, ...]
    needed: int

    def __post_init__(self) -> None:
        distinct = {key.public for key in self.keys}
        if not 1 <= self.needed <= len(distinct) or any(key.algorithm != COSIGNATURE_V1 for key in self.keys):
            raise _bad_key("a policy needs at least one and at most all of its witnesses, by keys of cosignature type")

    def witnesses(self, signed: SignedCheckpoint) -> set[bytes]:
        """The public keys that cosigned; one key under two names is one witness."""
        return {signer.key.public for signer in signed.signers(self.keys)}

    def satisfied(self, signed: SignedCheckpoint) -> bool:
        """Whether enough of them did."""
        return len(self.witnesses(signed)) >= self.needed


def sign_checkpoint(origin: str, size: int, root: bytes, public: bytes, signer: Sign) -> str:
    """The note of the log itself: ``signer`` holds the private half of the 32-byte Ed25519 key ``public``."""
    checkpoint, key = LedgerCheckpoint(origin, size, root), VerifierKey(origin, public)
    line = NoteSignature(key.name, key.key_id, signer(checkpoint.body().encode()))
    return str(SignedCheckpoint(checkpoint, (line,)))


def cosign(checkpoint: LedgerCheckpoint, key: VerifierKey, timestamp: int, signer: Sign) -> NoteSignature:
    """Sign as a witness that has checked consistency; ``timestamp`` in seconds since the epoch."""
    if key.algorithm != COSIGNATURE_V1 or not 0 <= timestamp <= _MAX_SIZE:
        raise _bad_key("a witness signs with a key of type 04 and a time after 1970")
    blob = timestamp.to_bytes(8, "big") + signer(_cosigned(checkpoint, timestamp))
    return NoteSignature(key.name, key.key_id, blob)


def _cosigned(checkpoint: LedgerCheckpoint, timestamp: int) -> bytes:
    return f"cosignature/v1\ntime {timestamp}\n{checkpoint.body()}".encode()


def _verified(checkpoint: LedgerCheckpoint, line: NoteSignature, key: VerifierKey) -> Signer:
    timestamp, message, signature = None, checkpoint.body().encode(), line.blob
    if key.algorithm == COSIGNATURE_V1:
        timestamp, signature = int.from_bytes(line.blob[:8], "big"), line.blob[8:]
        message = _cosigned(checkpoint, timestamp)
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, message)
    except (InvalidSignature, ValueError) as error:
        raise Refusal("bad_signature", 403, f"the signature in the name of {key.name} does not hold") from error
    return Signer(key, timestamp)


def _unbase64(text: str) -> bytes | None:
    """Standard base64 in its one canonical spelling, or ``None``."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if base64.b64encode(raw).decode() == text else None


def _is_printable(text: str) -> bool:
    return not any(character < " " for character in text)


def _is_key_name(name: str) -> bool:
    return bool(name) and "+" not in name and not any(letter.isspace() or letter < " " for letter in name)


def _bad_key(detail: str) -> Refusal:
    return Refusal("bad_verifier_key", 400, detail)


def _bad_note(detail: str) -> Refusal:
    return Refusal("bad_checkpoint", 422, f"the checkpoint cannot be read: {detail}")
