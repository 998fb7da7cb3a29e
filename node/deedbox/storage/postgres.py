"""PostgreSQL as the shared engine: any number of processes, one order a domain by a transaction-level advisory lock."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, cast

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import namedtuple_row

from deedbox.refusals import Unavailable
from deedbox.storage.arrays import array_of
from deedbox.storage.connection import Broken, Lost, Row, conflict_sql, joined_engine
from deedbox.storage.tables import Rows

GROUP_LOCK = 0x64656564
"""The advisory lock all groups of one database take first (decision 34)."""

_BEGIN = f"begin; select pg_advisory_xact_lock({GROUP_LOCK}), pg_current_xact_id()::text"

QUESTIONS = 5
"""How often a server that keeps hanging up is asked the same."""

ROLLED_BACK = "40"
"""The SQLSTATE class of a transaction that was not kept."""

_NAMED = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_PERCENT = re.compile(r"%(?!\()")


class Joined(psycopg.Connection[Any]):
    """A connection whose transaction belongs to the group: an ORM joined to it can neither commit nor roll back."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class PostgresConnection:
    """One connection; writing ones serialise their groups, reading ones are read-only."""

    engine = "postgresql"

    def __init__(self, url: str, *, writing: bool) -> None:
        self._url = url
        self._writing = writing
        self._raw: Any = None
        self._engine: Any = None
        self._transaction = ""
        self._open()

    @property
    def lost(self) -> bool:
        """Also where it was cut off inside a pipeline, which it then can neither leave nor go on with."""
        raw = self._raw
        return bool(raw.closed or raw.broken or raw.pgconn.pipeline_status != PipelineStatus.OFF)

    def _open(self) -> None:
        """Connect, and once more to a server that hung up meanwhile; raises ``Unavailable``."""
        try:
            return self._connect()
        except psycopg.OperationalError:
            pass
        try:
            self._connect()
        except psycopg.OperationalError as error:
            raise Unavailable("store_unavailable", "the database does not answer") from error

    def _connect(self) -> None:
        if self._raw is not None:
            self._raw.close()
        self._raw = Joined.connect(self._url, autocommit=True, prepare_threshold=1, connect_timeout=5)
        self._raw.prepared_max = 512
        self._plain = self._raw.cursor()
        self._rows = self._raw.cursor(row_factory=namedtuple_row)
        self._plain.execute("set timezone = 'UTC'")
        if not self._writing:
            self._plain.execute("set default_transaction_read_only = on")
        self._engine = None

    @property
    def in_step(self) -> bool:
        return bool(self._raw.pgconn.transaction_status == TransactionStatus.INTRANS)

    def begin(self) -> None:
        if self.lost:
            self._open()
        try:
            self._plain.execute(_BEGIN)
        except psycopg.OperationalError:
            self._raw.close()
            raise
        self._plain.nextset()
        self._transaction = self._plain.fetchone()[1]

    def commit(self) -> None:
        """Kept, or an error and not kept: a group whose commit was not heard of must not be run a second time."""
        try:
            self._plain.execute("commit")
        except psycopg.OperationalError as error:
            if (error.sqlstate or "").startswith(ROLLED_BACK):
                raise
            self._raw.close()
            if not self._was_kept():
                raise
            return
        if self._plain.statusmessage != "COMMIT":
            raise Broken("the transaction had failed")

    def _was_kept(self) -> bool:
        """What became of the transaction; ``Unavailable`` if the server does not say, and then nobody knows."""
        for _ in range(QUESTIONS):
            try:
                return self._asked_whether_kept()
            except psycopg.OperationalError:
                self._raw.close()
        raise Unavailable("store_unavailable", "the database does not say whether it kept this")

    def _asked_whether_kept(self) -> bool:
        if self.lost:
            self._open()
        while True:  # the server may not know yet that nobody listens any more
            (status,) = self._plain.execute("select pg_xact_status(%s::xid8)", (self._transaction,)).fetchone()
            if status != "in progress":
                return bool(status == "committed")
            time.sleep(0.05)

    def rollback(self) -> None:
        if self.lost:
            return
        try:
            self._plain.execute("rollback")
        except psycopg.OperationalError:
            self._raw.close()

    def execute(self, sql: str, values: Mapping[str, Any]) -> int:
        return max(0, int(self._plain.execute(_translated(sql), values).rowcount))

    def rows(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        for _ in range(0 if self._writing else QUESTIONS):
            try:
                return self._fetched(sql, values)
            except psycopg.OperationalError:
                if not self.lost:
                    raise
            self._open()
        return self._fetched(sql, values)

    def _fetched(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        return list(self._rows.execute(_translated(sql), values).fetchall())

    def script(self, sql: str) -> None:
        self._plain.execute(sql)

    def insert(self, rows: Rows, values: Sequence[Sequence[Any]]) -> None:
        self._plain.execute(_insert(rows), _columns(rows, values))

    def upsert(self, rows: Rows, values: Sequence[Sequence[Any]]) -> None:
        self._plain.execute(_upsert(rows), _columns(rows, values))

    def having(self, wanted: Mapping[Rows, Iterable[Any]]) -> dict[Rows, list[tuple[Any, ...]]]:
        asked = {}
        with self._raw.pipeline():
            for rows, keys in wanted.items():
                asked[rows] = self._raw.execute(_having(rows), (array_of(rows.key_type, keys),))
        return {rows: list(cursor.fetchall()) for rows, cursor in asked.items()}

    def together(self) -> AbstractContextManager[Any]:
        return cast("AbstractContextManager[Any]", self._raw.pipeline())

    def session(self) -> Any:
        from sqlmodel import Session

        if self._engine is None:
            self._engine = joined_engine("postgresql+psycopg://", lambda: self._raw)
        return Session(self._engine, expire_on_commit=False)

    def repeatable(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.OperationalError | psycopg.errors.UniqueViolation | Lost)

    def failed(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.OperationalError | Lost)

    def close(self) -> None:
        self._raw.close()


@cache
def _translated(sql: str) -> str:
    """``:name`` → ``%(name)s``, once a statement."""
    return _NAMED.sub(r"%(\1)s", _PERCENT.sub("%%", sql))


@cache
def _insert(rows: Rows) -> str:
    arrays = ", ".join(f"%s::{kind}[]" for kind in rows.types)
    return f"insert into {rows.name} ({', '.join(rows.columns)}) select * from unnest({arrays})"  # noqa: S608


@cache
def _upsert(rows: Rows) -> str:
    return _insert(rows) + conflict_sql(rows)


def _columns(rows: Rows, values: Sequence[Sequence[Any]]) -> list[str]:
    """A parameter a column."""
    return list(map(array_of, rows.types, zip(*values, strict=True)))


@cache
def _having(rows: Rows) -> str:
    return f"select {', '.join(rows.columns)} from {rows.name} where {rows.key} = any(%s::{rows.key_type}[])"  # noqa: S608
