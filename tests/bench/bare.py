"""What an envelope costs at the very least: the steps of the floor, without a road, a policy, a guard or a receipt.

Parse, canonicalise, hash, verify ES256, insert against replay, append to a hash chain in SQLite with
``synchronous=FULL``, sign the reply. It takes the fastest primitive for every step (``orjson`` for canonical JSON,
which is right for the plain envelopes of the bench) and nothing from the node, so that the node cannot lower it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

import orjson
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from tests.bench.envelopes import SENDERS, b64url, canonical, der_signature, private_key, sign, utc_z

GROUP = 256
AGENT = "node@floor.test"
_ES256 = ec.ECDSA(hashes.SHA256())
_SCHEMA = """
CREATE TABLE replay (
    recipient TEXT, sender TEXT, id TEXT, expires_at TEXT, PRIMARY KEY (recipient, sender, id)
) WITHOUT ROWID;
CREATE TABLE entry (seq INTEGER PRIMARY KEY, leaf BLOB NOT NULL, header BLOB NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Proven:
    """An envelope whose signature holds, and what of it the journal and the reply need."""

    id: str
    sender: str
    recipient: str
    expires_at: str
    conversation: str
    body: object
    body_sha256: str


class Door:
    """Proves envelopes and signs replies; all in memory, all on the calling thread."""

    def __init__(self) -> None:
        self._keys = {agent: private_key(agent).public_key() for agent in SENDERS}
        self._own = private_key(AGENT)

    def prove(self, raw: bytes) -> Proven:
        """Parse, canonicalise, hash and verify; raises on anything that is not an envelope of a known sender."""
        envelope = orjson.loads(raw)
        signature = envelope.pop("signature")
        body = envelope["body"]
        digest = hashlib.sha256(canonical(body)).hexdigest()
        if digest != envelope["body_sha256"]:
            raise ValueError("body_hash_mismatch")
        if envelope["expires_at"] <= utc_z(time.time_ns() // 1_000_000):
            raise ValueError("expired_envelope")
        sender = envelope["from"]
        self._keys[sender].verify(der_signature(signature["value"]), canonical(envelope), _ES256)
        return Proven(
            envelope["id"], sender, envelope["to"], envelope["expires_at"], envelope["conversation"], body, digest
        )

    def reply(self, asked: Proven) -> bytes:
        """The signed ``result`` to a query, its body as OIP §8.5 lists it."""
        now = time.time_ns() // 1_000_000
        body = {
            "agent": AGENT,
            "answered_at": utc_z(now),
            "echo": asked.body,
            "encrypted": False,
            "invoked": False,
            "note": "An answer to a question; nothing was run.",
            "retrieved_text_is_data": True,
            "sender_verified": True,
        }
        preimage = canonical(
            {
                "protocol": "oip-message/1",
                "id": f"msg_{b64url(os.urandom(12))}",
                "conversation": asked.conversation,
                "in_reply_to": asked.id,
                "kind": "result",
                "from": AGENT,
                "to": asked.sender,
                "created_at": utc_z(now),
                "expires_at": utc_z(now + 300_000),
                "body": body,
                "capability": None,
                "body_sha256": hashlib.sha256(canonical(body)).hexdigest(),
            }
        )
        signature = canonical({"alg": "ES256", "kid": AGENT, "value": sign(preimage, self._own)})
        return preimage[:-1] + b',"signature":' + signature + b"}"  # member order is free in transit (OIP §5.3)


class Journal:
    """The replay table and the hash chain; one connection, one commit a group."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "floor.db", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(_SCHEMA)
        self._seq, self._head = 0, bytes(32)

    def insert(self, group: list[Proven]) -> None:
        """Claims and chains the group in a new transaction; raises if an id was seen before."""
        entries = [self._entry(asked) for asked in group]
        claims = [(asked.recipient, asked.sender, asked.id, asked.expires_at) for asked in group]
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO replay VALUES (?, ?, ?, ?)", claims)
        self._database.executemany("INSERT INTO entry VALUES (?, ?, ?)", entries)

    def commit(self) -> None:
        """Ends the transaction; on return the group is on disk."""
        self._database.execute("COMMIT")

    def count(self) -> int:
        """How many entries are committed."""
        return int(self._database.execute("SELECT count(*) FROM entry").fetchone()[0])

    def _entry(self, asked: Proven) -> tuple[int, bytes, bytes]:
        self._seq += 1
        header = canonical(
            {
                "v": 1,
                "seq": self._seq,
                "ts": time.time_ns() // 1_000_000,
                "kind": "query",
                "prev": self._head.hex(),
                "actor": asked.sender,
                "subject": asked.id,
                "payload": asked.body_sha256,
            }
        )
        self._head = hashlib.sha256(b"\x00" + header).digest()
        return self._seq, self._head, header
