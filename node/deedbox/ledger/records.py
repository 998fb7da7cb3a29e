"""What the offline verifier reads, from an export or from the database itself, in ledger order and constant memory.

**Export**, JSON Lines in UTF-8. The first line is ``{"deedbox-ledger-export": 1, "origin": domain, "keys": [vkey …]}``
(C2SP signed-note verifier keys). Each further line is one of

* ``{"entry": header, "salt": hex or null, "payload": text or null}``: the header's and the payload's canonical bytes as
  JSON strings; ``"actor"`` and ``"subject"`` may be added and are then held against their commitments;
* ``{"event": text or null, "id": n, "leaf": hex, "salt": hex or null}``: an event sealed by the batch entry right
  before, in the order of ids; after the last batch, events not sealed yet;
* ``{"checkpoint": note}``: right after the entry (and events) at which the ledger had that size.

**SQLite**, opened read-only in one transaction: ``ledger_entry(seq, header, leaf)``, ``ledger_payload(seq, salt,
payload)``, ``ledger_event(id, leaf, salt, event)``, ``ledger_checkpoint(size, note)``; all but the first may be absent.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from deedbox.ledger.checkpoint import VerifierKey
from deedbox.ledger.leaf import BATCH_KIND, parse_batch
from deedbox.refusals import Refusal

RUN = 256
"""Entries handed over at once."""
MAX_LINE = 16 * 1024 * 1024
EXPORT_VERSION = 1
_MARK = "deedbox-ledger-export"
_BATCH = f'","kind":"{BATCH_KIND}","'.encode()
_KIND_AT = slice(74, 74 + len(_BATCH))  # in canonical form the kind follows the 64 digits of the actor

_MAX_ID = 2**63 - 1
_COLUMNS = "coalesce(cast(e.seq as integer), 0), cast(coalesce(e.header, '') as blob), cast(e.leaf as blob)"
_ENTRIES = f"select {_COLUMNS} from ledger_entry e order by e.seq"  # noqa: S608
_ENTRIES_WITH_PAYLOADS = (
    f"select {_COLUMNS}, cast(p.salt as blob), cast(p.payload as blob) "  # noqa: S608
    "from ledger_entry e left join ledger_payload p on p.seq = e.seq order by e.seq"
)
_NOTES = "select cast(size as integer), cast(coalesce(note, '') as blob) from ledger_checkpoint order by size"
_EVENTS = (
    "select id, cast(leaf as blob), cast(salt as blob), cast(event as blob) from ledger_event "
    "where id > ? and id <= ? order by id"
)

EntryRow = tuple[Any, ...]
"""seq, header, stored leaf; then, if read, salt and payload; then, if read, actor and subject. All but ``seq`` are
bytes, and all but ``seq`` and header ``None`` where there is nothing. The rows of one run have one length."""
EventRow = tuple[int, bytes | None, bytes | None, bytes | None]
"""id, stored leaf, salt, event."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Neighbouring entries; the run ends after every batch entry."""

    rows: Sequence[EntryRow]

    @property
    def ends_in_batch(self) -> bool:
        return bool(self.rows) and self.rows[-1][1][_KIND_AT] == _BATCH


@dataclass(frozen=True, slots=True)
class Events:
    """Events of the batch entry right before, or, after the last batch, unsealed ones."""

    rows: Sequence[EventRow]


@dataclass(frozen=True, slots=True)
class Note:
    """A checkpoint's note, standing where the ledger had its size; at the end, if the ledger does not reach it."""

    text: str


Record = Entries | Events | Note


class Source(Protocol):
    """Where the records come from."""

    origin: str | None
    keys: tuple[VerifierKey, ...]

    def records(self) -> Iterator[Record]:
        """All records, once and in order; a ``Refusal`` where they cannot be read."""


class SqliteFile:
    """A node's database, read beside the running node or after it."""

    origin: str | None = None
    keys: tuple[VerifierKey, ...] = ()

    def __init__(self, path: Path, *, payloads: bool = True) -> None:
        """``payloads`` false reads neither payloads nor events: the chain and the tree alone."""
        self._path = path
        self._payloads = payloads

    def records(self) -> Iterator[Record]:
        try:
            with closing(sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
                connection.text_factory = bytes
                connection.isolation_level = None
                connection.execute("begin")
                yield from _SqliteWalk(connection, self._payloads).records()
        except sqlite3.Error as error:
            raise Refusal("unreadable_ledger", 422, f"the database cannot be read: {error}") from error


class _SqliteWalk:
    """The tables of one database, merged into ledger order."""

    def __init__(self, connection: sqlite3.Connection, payloads: bool) -> None:
        self._read = connection.execute
        tables = {name for (name,) in self._read("select name from sqlite_schema where type in ('table', 'view')")}
        self._payloads = payloads and b"ledger_payload" in tables
        self._events = self._payloads and b"ledger_event" in tables
        self._last_event = 0
        self._notes = self._read(_NOTES) if b"ledger_checkpoint" in tables else iter(())
        self._next: tuple[int, bytes] | None = next(self._notes, None)

    def records(self) -> Iterator[Record]:
        entries = self._read(_ENTRIES_WITH_PAYLOADS if self._payloads else _ENTRIES)
        while rows := entries.fetchmany(RUN):
            yield from self._cut(rows)
        yield from self._notes_until(None)
        if self._events:
            yield from self._events_until(None)

    def _cut(self, rows: list[EntryRow]) -> Iterator[Record]:
        """The rows in runs that end after each batch entry and where a checkpoint stands."""
        ends = [at for at, row in enumerate(rows, 1) if row[1][_KIND_AT] == _BATCH]
        start = 0
        for end in [*ends, len(rows)]:
            while start < end:
                first = rows[start][0]
                yield from self._notes_until(first - 1)
                stop = min(end, start + self._next[0] - first + 1) if self._next else end
                run = Entries(rows[start:stop])
                yield run
                if self._events and run.ends_in_batch:
                    yield from self._events_of(run.rows[-1][4])
                yield from self._notes_until(run.rows[-1][0])
                start = stop

    def _notes_until(self, size: int | None) -> Iterator[Note]:
        while self._next and (size is None or self._next[0] <= size):
            yield Note(self._next[1].decode(errors="replace"))
            self._next = next(self._notes, None)

    def _events_of(self, payload: bytes | None) -> Iterator[Events]:
        try:
            last = parse_batch(payload or b"").last
        except Refusal:  # the verifier judges it; here it only means that its events cannot be told from others
            return
        yield from self._events_until(last)
        self._last_event = max(self._last_event, last)

    def _events_until(self, last: int | None) -> Iterator[Events]:
        events = self._read(_EVENTS, (self._last_event, _MAX_ID if last is None else last))
        while rows := events.fetchmany(RUN):
            yield Events(rows)


class ExportFile:
    """An export, read once from its first line to its last."""

    def __init__(self, lines: IO[bytes]) -> None:
        """``lines`` stands at the start of the export; its first line is read at once."""
        self._lines = lines
        self._number = 0
        head = self._line() or {}
        keys = head.get("keys", [])
        if head.get(_MARK) != EXPORT_VERSION or not isinstance(keys, list):
            raise self._unreadable("it is not the first line of a ledger export of version 1")
        self.origin = str(head["origin"]) if "origin" in head else None
        self.keys = tuple(VerifierKey.parse(str(key)) for key in keys)

    def records(self) -> Iterator[Record]:
        rows: list[EntryRow] = []
        seq = 0
        while (line := self._line()) is not None:
            if "entry" not in line and rows:
                yield Entries(rows)
                rows = []
            if "entry" in line:
                seq += 1
                rows.append(self._entry(seq, line))
                if len(rows) == RUN or rows[-1][1][_KIND_AT] == _BATCH:
                    yield Entries(rows)
                    rows = []
            elif "event" in line:
                yield Events([self._event(line)])
            else:
                yield Note(self._text(line, "checkpoint", required=True).decode())
        if rows:
            yield Entries(rows)

    def _entry(self, seq: int, line: dict[str, Any]) -> EntryRow:
        header = self._text(line, "entry", required=True)
        salt, payload = self._hex(line, "salt"), self._text(line, "payload")
        return seq, header, None, salt, payload, self._text(line, "actor"), self._text(line, "subject")

    def _event(self, line: dict[str, Any]) -> EventRow:
        if type(line.get("id")) is not int:
            raise self._unreadable("member id must be an integer")
        return line["id"], self._hex(line, "leaf"), self._hex(line, "salt"), self._text(line, "event")

    def _line(self) -> dict[str, Any] | None:
        raw = self._lines.readline(MAX_LINE + 1)
        self._number += 1
        if not raw:
            return None
        try:
            found = json.loads(raw) if len(raw) <= MAX_LINE else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._unreadable(f"it is not a JSON object of at most {MAX_LINE} bytes")
        return found

    def _text(self, line: dict[str, Any], name: str, *, required: bool = False) -> Any:
        value: Any = line.get(name)
        if value is None and not required:
            return None
        try:
            return str.encode(value)
        except (TypeError, UnicodeEncodeError) as error:
            raise self._unreadable(f"member {name} must be a string") from error

    def _hex(self, line: dict[str, Any], name: str) -> bytes | None:
        try:
            return None if line.get(name) is None else bytes.fromhex(line[name])
        except (ValueError, TypeError) as error:
            raise self._unreadable(f"member {name} must be hexadecimal") from error

    def _unreadable(self, detail: str) -> Refusal:
        return Refusal("unreadable_ledger", 422, f"line {self._number} of the export: {detail}")


def export_lines(origin: str, keys: Iterable[VerifierKey], records: Iterable[Record]) -> Iterator[str]:
    """The lines of an export, each with its newline, from any source of records."""
    yield _dumped({_MARK: EXPORT_VERSION, "origin": origin, "keys": [str(key) for key in keys]})
    for record in records:
        if isinstance(record, Entries):
            yield from map(_entry_line, record.rows)
        elif isinstance(record, Events):
            yield from map(_event_line, record.rows)
        else:
            yield _dumped({"checkpoint": record.text})


def _entry_line(row: EntryRow) -> str:
    seq, header, _, salt, payload, actor, subject = (*row, None, None, None, None)[:7]
    try:
        line = {"entry": header.decode(), "salt": _hexed(salt), "payload": _decoded(payload)}
        named = {"actor": _decoded(actor), "subject": _decoded(subject)}
    except UnicodeDecodeError as error:
        raise Refusal("unreadable_ledger", 422, f"entry {seq} is not UTF-8 and cannot be exported") from error
    return _dumped(line | {name: value for name, value in named.items() if value is not None})


def _event_line(row: EventRow) -> str:
    number, leaf, salt, event = row
    try:
        return _dumped({"event": _decoded(event), "id": number, "leaf": _hexed(leaf), "salt": _hexed(salt)})
    except UnicodeDecodeError as error:
        raise Refusal("unreadable_ledger", 422, f"event {number} is not UTF-8 and cannot be exported") from error


def _decoded(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def _hexed(raw: bytes | None) -> str | None:
    return None if raw is None else raw.hex()


def _dumped(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
