"""What the group asks of a database connection, whichever engine is behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from deedbox.storage.tables import Rows

Row = Any
"""A named tuple of one result row: ``row.column``."""


class Broken(Exception):
    """The engine ended the transaction because of an error, and somebody went on."""


class Lost(Exception):
    """The connection ended in the middle of a group, whoever noticed; all of it may be run again."""


class Connection(Protocol):
    """One connection. SQL is written once, with ``:name`` parameters, in the part both engines share."""

    engine: str
    """``sqlite`` or ``postgresql``."""

    @property
    def in_step(self) -> bool:
        """Whether the transaction is still open and takes statements; an engine may end it after an error."""

    @property
    def lost(self) -> bool:
        """Whether the connection has ended; the next group opens another."""

    def begin(self) -> None:
        """Start a writing transaction holding the group's lock (decision 34: the lock is the first statement)."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def execute(self, sql: str, values: Mapping[str, Any]) -> int:
        """Run a changing statement; the number of rows it touched."""

    def rows(self, sql: str, values: Mapping[str, Any]) -> list[Row]: ...

    def script(self, sql: str) -> None:
        """Run a statement without parameters: savepoints, schema."""

    def insert(self, rows: Rows, values: Sequence[Sequence[Any]]) -> None:
        """Many rows of one table, in column order, in one statement."""

    def upsert(self, rows: Rows, values: Sequence[Sequence[Any]]) -> None:
        """The same, replacing the row that has the key."""

    def having(self, wanted: Mapping[Rows, Iterable[Any]]) -> dict[Rows, list[tuple[Any, ...]]]:
        """For each table the rows whose key is among the keys, in column order, by one statement a table."""

    def together(self) -> AbstractContextManager[Any]:
        """Changing statements inside are sent without waiting for each."""

    def session(self) -> Any:
        """An ORM session joined to the open transaction, which never commits by itself."""

    def repeatable(self, error: BaseException) -> bool:
        """Whether the group may simply be run again: a serialisation or connection fault (decision 34)."""

    def failed(self, error: BaseException) -> bool:
        """Whether the store failed and not the statement: nothing happened, and asking again later is right."""

    def close(self) -> None: ...


def insert_sql(rows: Rows, place: str = "?") -> str:
    """A one-row insert; the engine's driver repeats it."""
    places = ", ".join([place] * len(rows.columns))
    return f"insert into {rows.name} ({', '.join(rows.columns)}) values ({places})"  # noqa: S608  # names are ours


def conflict_sql(rows: Rows) -> str:
    """The tail that turns an insert into a replacement by key."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in rows.columns if name != rows.key)
    return f" on conflict ({rows.key}) do update set {changed}"


def joined_engine(url: str, raw: Callable[[], Any]) -> Any:
    """An SQLAlchemy engine over a connection we hold: one for ever, never reset, its parameters in no error's text."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    return create_engine(url, creator=raw, poolclass=StaticPool, pool_reset_on_return=None, hide_parameters=True)
