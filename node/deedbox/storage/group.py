"""The queue, the one writer and the one commit: units that arrive while a commit runs share the next one.

Nobody outside this package knows. A caller is answered only after the commit (kernel-notes §4.2, decisions 5, 29, 34).
What every unit of the group needs by key is asked in one statement a table before the first of them runs.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from deedbox.clock import Clock
from deedbox.refusals import Unavailable
from deedbox.storage.connection import Connection
from deedbox.storage.tables import Rows
from deedbox.storage.unit import FactRow, Unit

GROUP_LIMIT = 256
ATTEMPTS = 5
Ask = tuple[Rows, Any]
"""A row a unit will want: which table's rows, and the key."""


class Flushed(Protocol):
    """A part of the group that writes what it gathered, once, before the commit."""

    def flush(self, group: Group) -> None: ...


class Group:
    """The open transaction, and what its units have gathered but not yet written."""

    def __init__(self, connection: Connection, now: int, number: int) -> None:
        self.connection = connection
        self.now = now
        self.number = number
        self.notes: dict[Rows, list[tuple[Any, ...]]] = {}
        self._facts: dict[Rows, dict[Any, FactRow | None]] = {}
        self._dirty: dict[Rows, dict[Any, None]] = {}
        self._parts: dict[str, Any] = {}
        self._session: Any = None

    def load(self, asks: Iterable[Ask]) -> None:
        """Ask for every announced row, one statement a table."""
        wanted: dict[Rows, set[Any]] = {}
        for rows, key in asks:
            if key not in self._facts.get(rows, ()):
                wanted.setdefault(rows, set()).add(key)
        for rows, keys in wanted.items():
            known = self._facts.setdefault(rows, {})
            known.update(dict.fromkeys(keys))
            place = rows.columns.index(rows.key)
            for found in self.connection.having(rows, keys):
                known[found[place]] = dict(zip(rows.columns, found, strict=True))

    def fact(self, rows: Rows, key: Any) -> FactRow | None:
        known = self._facts.get(rows)
        if known is None or key not in known:
            self.load(((rows, key),))
            known = self._facts[rows]
        return known[key]

    def put(self, rows: Rows, row: FactRow) -> Callable[[], object]:
        """Remember a row by its key; answers how to take that back."""
        known = self._facts.setdefault(rows, {})
        key = row[rows.key]
        before = known.get(key)
        known[key] = row
        self._dirty.setdefault(rows, {})[key] = None
        return partial(known.__setitem__, key, before)

    def part(self, name: str, make: Callable[[Unit], Any], unit: Unit) -> Any:
        found = self._parts.get(name)
        if found is None:
            found = self._parts[name] = make(unit)
        return found

    def session(self) -> Any:
        if self._session is None:
            self._session = self.connection.session()
        return self._session

    def savepoint(self, sql: str) -> None:
        self.settle()
        self.connection.script(sql)

    def settle(self) -> None:
        """Let what an ORM session still holds reach the database before anybody reads."""
        if self._session is not None:
            self._session.flush()

    def flush(self) -> None:
        """Write what the units gathered: one statement a table."""
        self.settle()
        for part in self._parts.values():
            part.flush(self)
        for rows, keys in self._dirty.items():
            known = self._facts[rows]
            kept = [known[key] for key in keys]
            self.connection.upsert(rows, [tuple(row[name] for name in rows.columns) for row in kept if row])
        for rows, noted in self.notes.items():
            if noted:
                self.connection.insert(rows, noted)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


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
    """A unit failed after it had changed the database: our bug; the group is rolled back and each runs alone."""


class Writer:
    """The one thread that writes, and its queue."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="deedbox-writer", daemon=True)
        self._closed = False
        self._number = 0
        self._thread.start()

    def submit(self, work: Callable[..., Any], arguments: tuple[Any, ...], asks: Sequence[Ask]) -> asyncio.Future[Any]:
        if self._closed:
            raise Unavailable("store_closed", "the node is shutting down")
        task = Task(work, arguments, asks, asyncio.get_running_loop())
        self._queue.put(task)
        return task.future

    def close(self) -> None:
        """Let the waiting units finish, then stop."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            waiting = [first]
            last = False
            while len(waiting) < GROUP_LIMIT and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    last = True
                    break
                waiting.append(more)
            self._run(waiting)
            _answer(waiting)
            if last:
                return

    def _run(self, tasks: list[Task]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._commit(tasks)
            except Poisoned:
                return self._alone(tasks)
            except Exception as error:
                if attempt == ATTEMPTS or not self._connection.repeatable(error):
                    return _fail(tasks, error)

    def _alone(self, tasks: list[Task]) -> None:
        for task in tasks:
            try:
                self._commit([task])
            except Poisoned as poison:
                task.error = poison.__cause__
            except Exception as error:
                _fail([task], error)

    def _commit(self, tasks: list[Task]) -> None:
        connection = self._connection
        connection.begin()
        self._number += 1
        group = Group(connection, self._clock.now(), self._number)
        try:
            group.load(ask for task in tasks for ask in task.asks)
            for task in tasks:
                _perform(task, group)
            group.flush()
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
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


def _fail(tasks: list[Task], error: BaseException) -> None:
    for task in tasks:
        task.error = error


def _answer(tasks: list[Task]) -> None:
    """One call into each loop for the whole group."""
    loops: dict[asyncio.AbstractEventLoop, list[Task]] = {}
    for task in tasks:
        loops.setdefault(task.loop, []).append(task)
    for loop, settled in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, settled)


def _settle(tasks: list[Task]) -> None:
    for task in tasks:
        task.settle()
