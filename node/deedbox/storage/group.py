"""A group of units that share one transaction: what they need is asked once, what they gather is written once.

Units see each other in order, as if they had been committed one by one (kernel-notes §4.2, decisions 5, 29).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from deedbox.storage.connection import Broken, Connection, Lost
from deedbox.storage.tables import Rows
from deedbox.storage.unit import FactRow, Unit

Ask = tuple[Rows, Any]
"""A row a unit will want: which table's rows, and the key."""


class Flushed(Protocol):
    """A part of the group that writes what it gathered, once, before the commit."""

    def flush(self, group: Group) -> None: ...


class Group:
    """The open transaction, and what its units have gathered but not yet written.

    ``cautious``: an earlier run of its units broke, so what may break is given a savepoint of its own.
    """

    def __init__(self, connection: Connection, now: int, number: int, *, cautious: bool = False) -> None:
        self.connection = connection
        self.now = now
        self.number = number
        self.cautious = cautious
        self.notes: dict[Rows, list[tuple[Any, ...]]] = {}
        self._facts: dict[Rows, dict[Any, FactRow | None]] = {}
        self._dirty: dict[Rows, dict[Any, None]] = {}
        self._parts: dict[str, Flushed] = {}
        self._session: Any = None

    def load(self, asks: Iterable[Ask]) -> None:
        """Ask for every announced row, one statement a table."""
        wanted: dict[Rows, set[Any]] = {}
        for rows, key in asks:
            if key not in self._facts.get(rows, ()):
                wanted.setdefault(rows, set()).add(key)
        if not wanted:
            return
        for rows, found in self.connection.having(wanted).items():
            known = self._facts.setdefault(rows, {})
            known.update(dict.fromkeys(wanted[rows]))
            place = rows.columns.index(rows.key)
            for values in found:
                known[values[place]] = dict(zip(rows.columns, values, strict=True))

    def fact(self, rows: Rows, key: Any) -> FactRow | None:
        known = self._facts.get(rows)
        if known is None or key not in known:
            self.load(((rows, key),))
            known = self._facts[rows]
        return known[key]

    def put(self, rows: Rows, row: FactRow) -> Callable[[], object]:
        """Remember a row by its key; answers how to take that back."""
        known, dirty = self._facts.setdefault(rows, {}), self._dirty.setdefault(rows, {})
        key = row[rows.key]
        undo = partial(_restore, known, dirty, key, known.get(key, _UNASKED), key in dirty)
        known[key] = row
        dirty[key] = None
        return undo

    def part(self, name: str, make: Callable[[Unit], Any], unit: Unit) -> Any:
        found: Any = self._parts.get(name)
        if found is None:
            found = self._parts[name] = make(unit)
        return found

    def session(self) -> Any:
        if self._session is None:
            self._session = self.connection.session()
        return self._session

    def savepoint(self) -> None:
        self.settle()
        self.connection.script("savepoint act")

    def release(self) -> None:
        self.connection.script("release act")

    def back_to_savepoint(self, *, changed: bool) -> None:
        """Undo in the database what followed the savepoint, and forget what memory may have seen of it."""
        self.close()
        self.connection.script("rollback to act")
        self.connection.script("release act")
        if changed:
            for rows, known in self._facts.items():
                for key in known.keys() - self._dirty.get(rows, {}).keys():
                    del known[key]

    def settle(self) -> None:
        """Let what an ORM session still holds reach the database before anybody reads."""
        if self._session is not None:
            self._session.flush()

    def flush(self) -> None:
        """Write what the units gathered: one statement a table."""
        self.settle()
        with self.connection.together():
            for part in self._parts.values():
                part.flush(self)
            self._write()

    def _write(self) -> None:
        for rows, keys in self._dirty.items():
            known, values = self._facts[rows], rows.values
            kept = [values(row) for key in keys if (row := known[key])]
            if kept:
                self.connection.upsert(rows, kept)
        for rows, noted in self.notes.items():
            if noted:
                self.connection.insert(rows, noted)

    def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.close()


_UNASKED: Any = object()


def _restore(known: dict[Any, Any], dirty: dict[Any, None], key: Any, before: Any, was_dirty: bool) -> None:
    """Take a put back; a row that had not been asked for is unknown again, and not absent."""
    if before is _UNASKED:
        del known[key]
    else:
        known[key] = before
    if not was_dirty:
        del dirty[key]


class Task:
    """One unit waiting for its group."""

    __slots__ = ("arguments", "asks", "error", "future", "loop", "result", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        arguments: tuple[Any, ...],
        asks: Sequence[Ask],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.work = work
        self.arguments = arguments
        self.asks = asks
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Poisoned(Exception):
    """One unit's fault would cost the others: the group is rolled back, and each unit runs alone."""


def gather(connection: Connection, tasks: Sequence[Task], now: int, number: int, *, cautious: bool = False) -> None:
    """Begin, ask, run every unit, flush: everything but the commit; rolled back if it raises.

    Raises ``Poisoned`` if a unit failed after it had changed the database or broke the transaction, which is our bug,
    or if what one of several asked or gathered cannot be said to the engine; ``Lost`` if the connection ended, which is
    nobody's.
    """
    connection.begin()
    group = Group(connection, now, number, cautious=cautious)
    try:
        group.load(ask for task in tasks for ask in task.asks)
        for task in tasks:
            _perform(task, group)
        group.flush()
    except Exception as error:
        if connection.lost:
            raise Lost from error
        connection.rollback()
        ours = isinstance(error, Poisoned) or connection.failed(error) or connection.repeatable(error)
        if ours or len(tasks) == 1:
            raise
        raise Poisoned from error
    finally:
        group.close()


def _perform(task: Task, group: Group) -> None:
    unit = Unit(group, group.now)
    try:
        task.result, task.error = task.work(unit, *task.arguments), None
    except Exception as error:
        if not unit.abandon():
            raise Poisoned from error
        task.error = error
    if not group.connection.in_step:
        raise Poisoned from (task.error or Broken("a unit went on after its transaction had ended"))
