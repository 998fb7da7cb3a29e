"""A ledger kept on paper: entries, events, batches and signed heads, all of them open to tampering."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import rfc8785
from nacl.signing import SigningKey

from deedbox.ledger.checkpoint import COSIGNATURE_V1, SignedCheckpoint, VerifierKey, cosign, sign_checkpoint
from deedbox.ledger.leaf import (
    BATCH_KIND,
    EVENT_SCHEMA,
    NO_ENTRY,
    commit_actor,
    commit_payload,
    commit_subject,
    event_leaf,
    header_bytes,
)
from deedbox.ledger.merkle import leaf_hash, root
from deedbox.ledger.records import ExportFile, SqliteFile, export_lines
from deedbox.ledger.verify import Trust, Verdict, Witnessed, verify

ORIGIN = "a.test"
TS = "2026-01-02T03:04:05.678Z"


@dataclass
class Entry:
    header: bytes
    leaf: bytes
    salt: bytes | None
    payload: bytes | None


@dataclass
class Event:
    id: int
    leaf: bytes | None
    salt: bytes | None
    event: bytes | None


class Witness:
    """A key that cosigns, as type 04 of C2SP signed-note."""

    def __init__(self, name: str, seed: int) -> None:
        self._secret = SigningKey(seed.to_bytes(32, "big"))
        self.key = VerifierKey(name, bytes(self._secret.verify_key), COSIGNATURE_V1)

    def cosign(self, note: str, timestamp: int = 1_767_323_045) -> str:
        signed = SignedCheckpoint.parse(note)
        line = cosign(signed.checkpoint, self.key, timestamp, lambda message: self._secret.sign(message).signature)
        return str(signed.also(line))


@dataclass
class Paper:
    """Everything stays open to tampering: ``entries``, ``events`` and ``notes`` are what the files will say."""

    origin: str = ORIGIN
    random: Random = field(default_factory=lambda: Random(1))
    entries: list[Entry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)
    sealed: int = 0

    def __post_init__(self) -> None:
        self.secret = SigningKey(self.random.randbytes(32))
        self.key = VerifierKey(self.origin, bytes(self.secret.verify_key))

    def add(
        self, payload: Any = None, *, kind: str = "capability.use", body: bytes | None = None, **changed: Any
    ) -> Entry:
        """Append an entry; ``body`` is a payload in bytes of its own, keywords replace members of the header."""
        salt = self.random.randbytes(32)
        if body is None:
            body = rfc8785.dumps({"n": len(self.entries)} if payload is None else payload)
        members: dict[str, Any] = {
            "seq": len(self.entries) + 1,
            "ts": TS,
            "kind": kind,
            "prev": self.entries[-1].leaf if self.entries else NO_ENTRY,
            "actor": commit_actor(salt, "ann@a.test"),
            "subject": commit_subject(salt, "cap_1") if self.random.random() < 0.7 else None,
            "payload": commit_payload(salt, body),
            "refs": [f"entry:{len(self.entries)}"] if self.random.random() < 0.5 else [],
        }
        header = header_bytes(**(members | changed))
        entry = Entry(header, leaf_hash(header), salt, body)
        self.entries.append(entry)
        return entry

    def fill(self, count: int) -> Paper:
        for _ in range(count):
            self.add()
        return self

    def happen(self, count: int) -> Paper:
        """Write events that no batch has sealed yet."""
        for _ in range(count):
            salt, number = self.random.randbytes(32), len(self.events) + 1
            body = rfc8785.dumps({"what": "disclosure", "n": number})
            self.events.append(Event(number, event_leaf(salt, body), salt, body))
        return self

    def seal(self, **changed: Any) -> Entry:
        """Seal the waiting events into a batch entry."""
        waiting = self.events[self.sealed :]
        self.sealed = len(self.events)
        payload = {
            "first": waiting[0].id,
            "last": waiting[-1].id,
            "count": len(waiting),
            "root": root(event.leaf or b"" for event in waiting).hex(),
            "from": TS,
            "to": TS,
            "schema": EVENT_SCHEMA,
            "dropped": {},
        }
        return self.add(payload | changed, kind=BATCH_KIND)

    def sign(self, *witnesses: Witness) -> str:
        """Sign the head as it is now."""
        size = len(self.entries)
        note = sign_checkpoint(self.origin, size, self.head().root, self.key.public, self.signer)
        for witness in witnesses:
            note = witness.cosign(note)
        self.notes[size] = note
        return note

    def signer(self, message: bytes) -> bytes:
        return self.secret.sign(message).signature

    def head(self, size: int | None = None) -> Witnessed:
        """What a peer that watched would have kept."""
        kept = self.entries[: len(self.entries) if size is None else size]
        return Witnessed(len(kept), root(entry.leaf for entry in kept))

    def rewrite(self, index: int, payload: Any) -> None:
        """Put another entry at an index and chain all later ones anew, as the ledger's owner could."""
        later = len(self.entries) - index - 1
        del self.entries[index:]
        self.add(payload)
        self.fill(later)

    def database(self, path: Path) -> SqliteFile:
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as connection:
            connection.executescript(
                """
                create table ledger_entry (seq integer primary key, header blob not null, leaf blob not null);
                create table ledger_payload (seq integer primary key, salt blob, payload blob);
                create table ledger_event (id integer primary key, ts integer, leaf blob, salt blob, event blob);
                create table ledger_checkpoint (size integer primary key, note text not null);
                """
            )
            numbered = list(enumerate(self.entries, 1))
            connection.executemany(
                "insert into ledger_entry values (?, ?, ?)", [(n, e.header, e.leaf) for n, e in numbered]
            )
            kept = [(n, e.salt, e.payload) for n, e in numbered if e.salt is not None or e.payload is not None]
            connection.executemany("insert into ledger_payload values (?, ?, ?)", kept)
            happened = [(e.id, 0, e.leaf, e.salt, e.event) for e in self.events]
            connection.executemany("insert into ledger_event values (?, ?, ?, ?, ?)", happened)
            connection.executemany("insert into ledger_checkpoint values (?, ?)", self.notes.items())
        connection.close()
        return SqliteFile(path)

    def export(self, path: Path) -> bytes:
        return "".join(export_lines(self.origin, [self.key], self.database(path).records())).encode()


def check(paper: Paper, path: Path, trust: Trust | None = None) -> Verdict:
    """The verdict on a ledger: the same from its database and from its export, where it can be exported."""
    trust = trust or Trust(keys=(paper.key,))
    verdict = verify(paper.database(path), trust)
    exported = verify(ExportFile(BytesIO(paper.export(path))), trust)
    assert (exported.state, exported.size, exported.root) == (verdict.state, verdict.size, verdict.root)
    assert exported.witnessed_size == verdict.witnessed_size
    return verdict
