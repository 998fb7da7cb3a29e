"""A proof that an entry stands in the ledger, in one small text that verifies offline.

C2SP tlog-proof::

    c2sp.org/tlog-proof@v1
    extra <base64, optional>
    index 41
    <base64 of each 32-byte hash from the leaf's sibling up>

    <the checkpoint, whole>

The index counts from 0: it is the entry's ``seq`` less one. For an event in a batch, the proof is that of the batch
entry, and ``extra`` is canonical JSON: ``{"header": text, "index": place among the batch's events, "path": [hex …],
"payload": text, "salt": hex}`` of that entry (``SealedEvent``). ``extra`` is not signed; all of it is checked.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass

import rfc8785

from deedbox.ledger.checkpoint import LedgerCheckpoint, SignedCheckpoint, VerifierKey, WitnessPolicy
from deedbox.ledger.leaf import BATCH_KIND, SALT_SIZE, commit_payload, parse_batch, parse_header
from deedbox.ledger.merkle import HASH_SIZE, leaf_hash, root_from_path, verify_inclusion
from deedbox.refusals import Refusal

FIRST_LINE = "c2sp.org/tlog-proof@v1"
MAX_PROOF = 512 * 1024
_MAX_PATH = 63


@dataclass(frozen=True, slots=True)
class TlogProof:
    """An entry's place, its path and the signed checkpoint both belong to."""

    index: int
    path: tuple[bytes, ...]
    signed: SignedCheckpoint
    extra: bytes | None = None

    def __str__(self) -> str:
        lines = [FIRST_LINE]
        if self.extra is not None:
            lines.append(f"extra {base64.b64encode(self.extra).decode()}")
        lines.append(f"index {self.index}")
        lines += (base64.b64encode(step).decode() for step in self.path)
        return "\n".join(lines) + f"\n\n{self.signed}"

    @classmethod
    def parse(cls, text: str) -> TlogProof:
        """Read a proof; a ``Refusal`` if it is malformed. It says nothing before ``verify``."""
        if len(text) > MAX_PROOF:
            raise _bad("it is too long")
        head, _, note = text.partition("\n\n")
        first, *lines = head.split("\n")
        extra = _decoded(lines.pop(0)[6:]) if lines and lines[0].startswith("extra ") else None
        name, _, number = (lines.pop(0) if lines else "").partition(" ")
        if first != FIRST_LINE or name != "index" or not _is_number(number) or len(lines) > _MAX_PATH:
            raise _bad("it has a first line, an index and at most 63 hashes")
        path = tuple(map(_decoded, lines))
        if any(len(step) != HASH_SIZE for step in path):
            raise _bad("a hash has 32 bytes")
        return cls(int(number), path, SignedCheckpoint.parse(note), extra)

    def verify(
        self, leaf: bytes, origin: str, keys: Iterable[VerifierKey], witnesses: WitnessPolicy | None = None
    ) -> LedgerCheckpoint:
        """The checkpoint under which ``leaf`` is proved to stand at ``index``; a ``Refusal`` otherwise.

        ``keys`` are the log's, known from elsewhere. With ``witnesses``, enough of them must have cosigned.
        """
        checkpoint = self.signed.checkpoint
        if checkpoint.origin != origin:
            raise _fails(f"it is about the ledger of {checkpoint.origin}")
        if not self.signed.signers(keys):
            raise _fails("no known key of the ledger signed the checkpoint")
        if witnesses is not None and not witnesses.satisfied(self.signed):
            raise _fails("too few witnesses cosigned the checkpoint")
        if not verify_inclusion(self.index, checkpoint.size, leaf, self.path, checkpoint.root):
            raise _fails("the path does not lead from the entry to the signed root")
        return checkpoint


@dataclass(frozen=True, slots=True)
class SealedEvent:
    """What joins an event to the batch entry that sealed it; the ``extra`` of that entry's proof."""

    index: int
    path: tuple[bytes, ...]
    header: bytes
    salt: bytes
    payload: bytes

    def to_bytes(self) -> bytes:
        """Canonical JSON, for ``TlogProof.extra``."""
        return rfc8785.dumps(
            {
                "header": self.header.decode(),
                "index": self.index,
                "path": [step.hex() for step in self.path],
                "payload": self.payload.decode(),
                "salt": self.salt.hex(),
            }
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> SealedEvent:
        try:
            found = json.loads(raw)
            path = tuple(map(bytes.fromhex, found["path"]))
            header, payload, salt = found["header"].encode(), found["payload"].encode(), bytes.fromhex(found["salt"])
            sealed = cls(found["index"], path, header, salt, payload)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _bad("its extra line does not describe an event in a batch") from error
        if type(sealed.index) is not int or len(sealed.salt) != SALT_SIZE:
            raise _bad("its extra line does not describe an event in a batch")
        return sealed

    def verify(self, leaf: bytes) -> bytes:
        """The leaf hash of the batch entry, if the event's ``leaf`` is sealed in it; a ``Refusal`` otherwise."""
        header = parse_header(self.header)
        if header.kind != BATCH_KIND or commit_payload(self.salt, self.payload) != header.payload:
            raise _fails("the batch shown is not the one its entry committed to")
        batch = parse_batch(self.payload)
        if root_from_path(self.index, batch.size, leaf, self.path) != batch.root:
            raise _fails("the path does not lead from the event to the root of its batch")
        return leaf_hash(self.header)


def verify_event(
    proof: TlogProof, leaf: bytes, origin: str, keys: Iterable[VerifierKey], witnesses: WitnessPolicy | None = None
) -> LedgerCheckpoint:
    """The checkpoint under which an event's leaf is proved: event in batch, batch entry in ledger."""
    if proof.extra is None:
        raise _fails("it does not say which batch sealed the event")
    return proof.verify(SealedEvent.from_bytes(proof.extra).verify(leaf), origin, keys, witnesses)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and str(int(text)) == text


def _decoded(line: str) -> bytes:
    try:
        raw = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad("a line is not base64") from error
    if base64.b64encode(raw).decode() != line:
        raise _bad("a line is not base64 in its one spelling")
    return raw


def _bad(detail: str) -> Refusal:
    return Refusal("bad_proof", 422, f"the proof cannot be read: {detail}")


def _fails(detail: str) -> Refusal:
    return Refusal("proof_fails", 422, f"the proof does not hold: {detail}")
