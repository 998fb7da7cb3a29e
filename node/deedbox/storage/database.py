"""The node's database: units in groups for writing, read connections for looking.

``sqlite:///path`` is the embedded default, kept by exactly one process under a lock file; a ``postgresql://`` URL is
shared by any number of them (decisions 4, 17, 34).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from deedbox.clock import Clock, SystemClock
from deedbox.refusals import Fault, Refusal, Unavailable
from deedbox.storage.connection import Connection, Row
from deedbox.storage.group import Ask
from deedbox.storage.sqlite import SqliteConnection, outdated
from deedbox.storage.unit import Unit
from deedbox.storage.wake import hear_others
from deedbox.storage.writer import writer_for

P = ParamSpec("P")
Result = TypeVar("Result")
READERS = 4


def sqlite_path(url: str) -> Path | None:
    """The file an ``sqlite:///`` URL names, or nothing for another engine."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def connect(url: str, *, writing: bool) -> Connection:
    """Open one connection; the only place that does."""
    path = sqlite_path(url)
    if path is not None:
        return SqliteConnection(str(path), writing=writing)
    if not url.startswith(("postgresql://", "postgres://")):
        raise Refusal("unknown_database", 400, "a database URL starts with sqlite:/// or postgresql://")
    try:
        from deedbox.storage.postgres import PostgresConnection
    except ImportError as missing:
        raise Refusal(
            "postgres_not_installed", 500, str(missing), next_step="pip install 'deedbox[postgres]'", fault=Fault.OURS
        ) from missing
    return PostgresConnection(url, writing=writing)


class Reader:
    """A read connection seen by a view: queries only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.engine = connection.engine

    def one(self, sql: str, **values: Any) -> Row | None:
        found = self._connection.rows(sql, values)
        return found[0] if found else None

    def all(self, sql: str, **values: Any) -> list[Row]:
        return self._connection.rows(sql, values)


class Database:
    """Where a node keeps what it must not lose."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.url = url
        self.clock = clock or SystemClock()
        self._lock = _take_lock(sqlite_path(url))
        self._writer = writer_for(connect(url, writing=True), self.clock)
        self._readers: queue.SimpleQueue[Reader] = queue.SimpleQueue()
        self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="deedbox-reader")
        self._opened: list[Connection] = []

    def run(self, work: Callable[Concatenate[Unit, P], Result], *args: P.args, **kwargs: P.kwargs) -> Awaitable[Result]:
        """Run a unit in the next group; answered after the commit, with its result or its exception."""
        if kwargs:
            raise TypeError("units take positional arguments")
        return self._writer.submit(work, args, ())

    def run_asking(self, asks: Sequence[Ask], work: Callable[..., Result], *args: Any) -> Awaitable[Result]:
        """The same, announcing rows the unit will want, so that the group asks for them together."""
        return self._writer.submit(work, args, asks)

    async def read(self, look: Callable[Concatenate[Reader, P], Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run a look on a read connection, off the loop; it sees what has been committed."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, lambda: self._look(look, *args, **kwargs))

    def _look(self, look: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        with self._reader() as reader:
            return look(reader, *args, **kwargs)

    @contextmanager
    def _reader(self) -> Iterator[Reader]:
        try:
            reader = self._readers.get_nowait()
        except queue.Empty:
            connection = connect(self.url, writing=False)
            self._opened.append(connection)
            reader = Reader(connection)
        try:
            yield reader
        finally:
            self._readers.put(reader)

    @asynccontextmanager
    async def hearing(self, bell: Callable[[], object]) -> AsyncIterator[None]:
        """Ring a bell while the block lasts, whenever another process has made work (``wake.wake_others``)."""
        if sqlite_path(self.url) is not None:
            yield
            return
        task = asyncio.create_task(hear_others(self.url, bell), name="hearing")
        try:
            yield
        finally:
            while not task.done():  # the driver may swallow a cancellation that meets a notice (Python 3.11's wait_for)
                task.cancel()
                await asyncio.wait({task}, timeout=0.1)

    def outdated(self) -> str | None:
        """What an operator should know of the engine's version, if it is too old (fed:G2)."""
        return outdated() if sqlite_path(self.url) is not None else None

    def close(self) -> None:
        """Finish the waiting units, close every connection, release the lock."""
        self._writer.close()
        self._reading.shutdown()
        for connection in self._opened:
            connection.close()
        if self._lock is not None:
            os.close(self._lock)


@contextmanager
def sole_keeper(url: str) -> Iterator[None]:
    """Hold the lock of a database without opening it, as a change of its schema does; nothing for a shared engine."""
    lock = _take_lock(sqlite_path(url))
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _take_lock(path: Path | None) -> int | None:
    """Exactly one process keeps an SQLite file (decision 34)."""
    if path is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Unavailable(
            "database_in_use",
            f"another process keeps {path.name}",
            next_step="stop that one first",
        ) from None
    return handle
