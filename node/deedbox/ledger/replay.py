"""Replaying the chain: every header in canonical form, every link, every leaf, every commitment that can be opened.

The rules are those of ``deedbox.ledger.leaf``. A run of entries is first asked as a whole, column by column, which
costs little more than hashing it; only a run that is not plainly right is gone through entry by entry, which says what
is wrong and where, or that nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import rfc8785

from deedbox.ledger.leaf import (
    ACTOR_LABEL,
    NO_ENTRY,
    PAYLOAD_LABEL,
    PLAIN_HEADER,
    SALT_SIZE,
    SUBJECT_LABEL,
    Header,
    parse_header,
)
from deedbox.ledger.merkle import leaf_hash
from deedbox.ledger.records import EntryRow
from deedbox.refusals import Refusal

_HEX = b"0123456789abcdef"
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_INSTANT = b"0000-00-00T00:00:00.000Z"
_SAFE_INTEGER = 2**53 - 1


class BadEntry(Exception):
    """The first entry that breaks a rule, and which one; ``seq`` is ``None`` for an event in no batch."""

    def __init__(self, seq: int | None, reason: str) -> None:
        super().__init__(reason if seq is None else f"entry {seq}: {reason}")
        self.seq = seq
        self.reason = reason


@dataclass(slots=True)
class Opened:
    """How many commitments were held against what they commit to, and how many could not be."""

    payloads: int = 0
    absent: int = 0
    names: int = 0


@dataclass(slots=True)
class Chain:
    """How far the replay has come: ``size`` entries, the last of which has leaf hash ``head``."""

    size: int = 0
    head: bytes = NO_ENTRY
    opened: Opened = field(default_factory=Opened)
    payload_form: bool = False
    """Whether payloads must also be canonical JSON, not only what was committed to; slow."""

    def replay(self, rows: Sequence[EntryRow]) -> list[bytes]:
        """Check the next entries and return their leaf hashes; ``BadEntry`` at the first that is wrong."""
        leaves = self._together(rows) if rows and not self.payload_form else None
        if leaves is None:
            leaves = [self._one(row) for row in rows]
        return leaves

    def _together(self, rows: Sequence[EntryRow]) -> list[bytes] | None:
        """The leaf hashes if the run is plainly right, ``None`` if it must be looked at entry by entry."""
        seqs, headers, stored, *shown = zip(*rows, strict=True)
        found = [match.groups() for match in map(PLAIN_HEADER.fullmatch, headers) if match]
        nothing = (None,) * len(rows)
        salts, payloads, *names = shown or (nothing, nothing)
        if len(found) != len(rows) or any(column != nothing for column in names):
            return None
        by, commitments, links, numbers, about, instants = zip(*found, strict=True)
        leaves = [sha256(b"\x00" + header).digest() for header in headers]
        expected = list(range(self.size + 1, self.size + len(rows) + 1))
        printed = str(expected)[1:-1].encode()
        hashes = b"".join((*by, *commitments, *filter(None, about)))
        sound = (
            b"".join(links) == b"".join((self.head, *leaves[:-1])).hex().encode()
            and b", ".join(numbers) == printed
            and list(seqs) == expected
            and (list(stored) == leaves or stored == nothing)
            and not hashes.translate(None, _HEX)
            and b"".join(instants).translate(_DIGITS_TO_ZERO) == _INSTANT * len(rows)
        )
        absent = payloads.count(None)
        if not sound or (absent < len(rows) and not _payloads_hold(salts, payloads, commitments)):
            return None
        self.size, self.head = self.size + len(rows), leaves[-1]
        self.opened.absent += absent
        self.opened.payloads += len(rows) - absent
        return leaves

    def _one(self, row: EntryRow) -> bytes:
        seq, raw, stored, *shown = row
        place = self.size + 1
        try:
            header = parse_header(raw)
        except Refusal as refusal:
            raise BadEntry(place, refusal.detail) from refusal
        leaf = leaf_hash(raw)
        if header.seq != place or seq != place:
            raise BadEntry(place, _missing(place, header.seq, seq))
        if header.prev != self.head:
            raise BadEntry(place, "its prev is not the leaf hash of the entry before")
        if stored is not None and stored != leaf:
            raise BadEntry(place, "its stored leaf is not the hash of its header")
        self._open(place, header, *(*shown, None, None, None, None)[:4])
        self.size, self.head = place, leaf
        return leaf

    def _open(
        self,
        place: int,
        header: Header,
        salt: bytes | None,
        payload: bytes | None,
        actor: bytes | None,
        subject: bytes | None,
    ) -> None:
        """Hold what is shown against its commitment; what is not shown is counted."""
        shown = (
            ("payload", PAYLOAD_LABEL, payload, header.payload),
            ("actor", ACTOR_LABEL, actor, header.actor),
            ("subject", SUBJECT_LABEL, subject, header.subject),
        )
        for name, label, content, commitment in shown:
            if content is None:
                continue
            if salt is None or len(salt) != SALT_SIZE:
                raise BadEntry(place, f"its {name} is shown without the 32 bytes of salt that would prove it")
            if sha256(label + salt + content).hexdigest() != commitment:
                raise BadEntry(place, f"its {name} is not what the header commits to")
        if payload is not None and self.payload_form and not is_canonical(payload):
            raise BadEntry(place, "its payload is not canonical JSON")
        self.opened.absent += payload is None
        self.opened.payloads += payload is not None
        self.opened.names += (actor is not None) + (subject is not None)


def _payloads_hold(
    salts: Sequence[bytes | None], payloads: Sequence[bytes | None], commitments: Sequence[bytes]
) -> bool:
    for salt, payload, commitment in zip(salts, payloads, commitments, strict=True):
        if payload is None:
            continue
        if salt is None or len(salt) != SALT_SIZE:
            return False
        if sha256(PAYLOAD_LABEL + salt + payload).hexdigest().encode() != commitment:
            return False
    return True


def _missing(place: int, said: int, row: int) -> str:
    if said == row > place:
        return f"it is missing: the next one is {said}"
    return f"it is not in its place: its header says {said}, its row {row}"


def is_canonical(raw: bytes) -> bool:
    """Whether bytes are RFC 8785 canonical JSON."""
    try:
        return rfc8785.dumps(json.loads(raw, parse_int=_number)) == raw
    except (ValueError, TypeError, RecursionError):
        return False


def _number(text: str) -> int | float:
    """Integers beyond 2^53 - 1 are printed from floating point, such as 100000000000000000000 for 1e20."""
    exact = int(text)
    return exact if abs(exact) <= _SAFE_INTEGER else float(text)
