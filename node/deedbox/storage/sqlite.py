"""SQLite as the embedded store: WAL, full synchronisation, one writer (kernel-notes §4.4 gives the measurements)."""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import orjson

from deedbox.storage.connection import Broken, Row, conflict_sql, insert_sql, joined_engine
from deedbox.storage.tables import Rows

CHECKPOINT_PAGES = 4_000
"""Pages of the log (16 MB) after which they are copied into the file: what is written again and again, such as an
index of names that peers chose, is copied once for four times at SQLite's own 1,000."""

WRITERS_CACHE, READERS_CACHE = 32_768, 16_384
"""KiB of pages kept in memory, once they were used: the writer's hold the indexes of 100,000 names that peers chose."""

FIXED_IN = (3, 51, 3)
"""The version in which the WAL-reset bug was mended; with one writing connection older ones are safe too."""

_OF_THE_STORE = frozenset(
    (
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL),
        *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOTADB),
    )
)
"""Result codes that speak of the file and not of the statement (sqlite.org/rescode.html)."""


def outdated() -> str | None:
    """What to tell an operator whose SQLite has the WAL-reset bug (fed:G2)."""
    if sqlite3.sqlite_version_info >= FIXED_IN:
        return None
    fixed = ".".join(map(str, FIXED_IN))
    return f"SQLite {sqlite3.sqlite_version} may damage a WAL that two connections reset at once; {fixed} does not"


class Joined(sqlite3.Connection):
    """A connection whose transaction belongs to the group: an ORM joined to it can neither commit nor roll back."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


@cache
def _record(columns: tuple[str, ...]) -> Any:
    make: Any = namedtuple  # the columns are known only when the query has run
    return make("Row", columns, rename=True)._make


def _as_row(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> Any:
    return _record(tuple(column[0] for column in cursor.description))(values)


class SqliteConnection:
    """One connection to the file; ``writing`` opens the only one that may change anything."""

    engine = "sqlite"

    def __init__(self, path: str, *, writing: bool) -> None:
        self._raw = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=512, factory=Joined, timeout=5.0
        )
        self._rows = self._raw.cursor()
        self._rows.row_factory = _as_row
        self._plain = self._raw.cursor()
        # recursive_triggers: "insert or replace" deletes, and only so does a trigger see it (sqlite.org/lang_conflict)
        for pragma in ("journal_mode=wal", "synchronous=full", "temp_store=memory", "recursive_triggers=on"):
            self._plain.execute(f"pragma {pragma}")
        self._plain.execute(f"pragma cache_size=-{WRITERS_CACHE if writing else READERS_CACHE}")
        self._plain.execute(f"pragma wal_autocheckpoint={CHECKPOINT_PAGES if writing else 0}")
        if not writing:
            self._plain.execute("pragma query_only=on")
        self._engine: Any = None

    @property
    def in_step(self) -> bool:
        return self._raw.in_transaction

    @property
    def lost(self) -> bool:
        """A file does not hang up."""
        return False

    def _require_step(self) -> None:
        """A full disk ends the transaction (SQLITE_FULL); what followed would be kept statement by statement."""
        if not self._raw.in_transaction:
            raise Broken("the transaction has ended")

    def begin(self) -> None:
        self._plain.execute("begin immediate")

    def commit(self) -> None:
        self._plain.execute("commit")

    def rollback(self) -> None:
        if self._raw.in_transaction:
            self._plain.execute("rollback")

    def execute(self, sql: str, values: Mapping[str, Any]) -> int:
        self._require_step()
        before = self._raw.total_changes
        self._plain.execute(sql, values)  # rowcount is -1 for WITH … UPDATE on Python 3.11, so changes are counted
        return self._raw.total_changes - before

    def rows(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        return self._rows.execute(sql, values).fetchall()

    def script(self, sql: str) -> None:
        self._require_step()
        self._plain.execute(sql)

    def insert(self, rows: Rows, values: Sequence[Sequence[Any]]) -> None:
        self._require_step()
        self._plain.executemany(_insert(rows), values)

    def upsert(self, rows: Rows, values: Sequence[Sequence[Any]]) -> None:
        self._require_step()
        self._plain.executemany(_upsert(rows), values)

    def having(self, wanted: Mapping[Rows, Iterable[Any]]) -> dict[Rows, list[tuple[Any, ...]]]:
        run = self._plain.execute
        return {
            rows: run(_having(rows), (orjson.dumps(list(keys)).decode(),)).fetchall() for rows, keys in wanted.items()
        }

    def together(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def session(self) -> Any:
        self._require_step()
        from sqlmodel import Session

        if self._engine is None:
            self._engine = joined_engine("sqlite://", lambda: self._raw)
        return Session(self._engine, expire_on_commit=False)

    def repeatable(self, error: BaseException) -> bool:
        return False

    def failed(self, error: BaseException) -> bool:
        return isinstance(error, Broken) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_STORE

    def close(self) -> None:
        self._raw.close()


@cache
def _insert(rows: Rows) -> str:
    return insert_sql(rows)


@cache
def _upsert(rows: Rows) -> str:
    return insert_sql(rows) + conflict_sql(rows)


@cache
def _having(rows: Rows) -> str:
    columns = ", ".join(rows.columns)
    return f"select {columns} from {rows.name} where {rows.key} in (select value from json_each(?))"  # noqa: S608
