"""The ledger's tables: entries in a chain, their payloads beside them, events, batches, checkpoints, tiles.

Entries and events are append-only by trigger on both engines; only a payload with its salt can be deleted, which is
what redaction is (kernel-notes §5.4). ``seq`` is the primary key, so two entries cannot share a predecessor.
"""

from __future__ import annotations

from sqlmodel import Field

from deedbox.storage.tables import Rows, Table


class Entry(Table, table=True):
    """One link: the header's bytes and their hash, which is chain link and Merkle leaf at once."""

    seq: int = Field(primary_key=True)
    header: bytes
    leaf: bytes


class Payload(Table, table=True):
    """What an entry committed to, and the salt of the commitment; both go when it is redacted."""

    seq: int = Field(primary_key=True)
    salt: bytes
    payload: bytes


class Event(Table, table=True):
    """A disclosure or a piece of telemetry, sealed into a batch later: canonical bytes, salt, leaf hash."""

    id: int = Field(primary_key=True)
    ts: int
    leaf: bytes
    salt: bytes
    event: bytes


class Batch(Table, table=True):
    """Which events an entry sealed: ids ``first`` to ``last``, no gap before the next batch."""

    first: int = Field(primary_key=True)
    last: int
    seq: int


class Checkpoint(Table, table=True):
    """A signed head: the tree's size and the C2SP note over it."""

    size: int = Field(primary_key=True)
    note: str


class Tile(Table, table=True):
    """256 leaf hashes and their stem (``tiles.py`` gives the form); ``place`` is the tile's address as one number."""

    place: int = Field(primary_key=True)
    hashes: bytes


class Invocation(Table, table=True):
    """Where the receipt of a run is: an entry or an event. Ids sort by time, so the index only grows at its end."""

    id: str = Field(primary_key=True)
    seq: int | None = None
    event: int | None = None


ENTRIES = Rows(Entry, key="seq")
PAYLOADS = Rows(Payload, key="seq")
EVENTS = Rows(Event, key="id")
BATCHES = Rows(Batch, key="first")
TILES = Rows(Tile, key="place")
INVOCATIONS = Rows(Invocation, key="id")
