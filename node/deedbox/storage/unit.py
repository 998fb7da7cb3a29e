"""One short synchronous unit of work inside a group: it reads, decides, changes; the group commits.

A unit sees what earlier units of its group did, exactly as if they had been committed one by one. What it *notes*
and *puts* stays in memory until the group is flushed, and can be undone there; only ``change`` and ``session`` touch
the database at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

from deedbox.storage.connection import Row
from deedbox.storage.tables import Rows

if TYPE_CHECKING:
    from deedbox.storage.group import Group

Part = TypeVar("Part")
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
FactRow = dict[str, Any]


class Unit:
    """What a policy, a runner or an observer may do with the database while its group is open."""

    __slots__ = ("_changed", "_group", "_undo", "now")

    def __init__(self, group: Group, now: int) -> None:
        self._group = group
        self._undo: list[Callable[[], object]] = []
        self._changed = False
        self.now = now
        """Milliseconds since the epoch, read once for the group."""

    @property
    def group(self) -> int:
        """The number of the group in its process, counted from one: what shares a commit shares it."""
        return self._group.number

    @property
    def engine(self) -> str:
        return self._group.connection.engine

    # -- reading ---------------------------------------------------------------------------------------------------

    def one(self, sql: str, **values: Any) -> Row | None:
        """The first row of a query, as a named tuple, or nothing."""
        found = self.all(sql, **values)
        return found[0] if found else None

    def all(self, sql: str, **values: Any) -> list[Row]:
        self._group.settle()
        return self._group.connection.rows(sql, values)

    def fact(self, rows: Rows, key: Any) -> FactRow | None:
        """A row found by its key, as a dictionary of columns; asked once for the whole group if it was announced.

        Change it by ``put``, never in place: what is put is seen by later units and written at the flush.
        """
        return self._group.fact(rows, key)

    # -- writing ---------------------------------------------------------------------------------------------------

    def put(self, rows: Rows, row: FactRow) -> None:
        """Insert or replace a row by its key when the group is flushed; later units of the group see it now."""
        self._undo.append(self._group.put(rows, row))

    def note(self, rows: Rows, row: tuple[Any, ...]) -> None:
        """Append a row, in column order, that nobody reads inside the group."""
        noted = self._group.notes.setdefault(rows, [])
        noted.append(row)
        self._undo.append(noted.pop)

    def change(self, sql: str, **values: Any) -> int:
        """Run a changing statement at once; the number of rows it touched."""
        self._group.settle()
        self._changed = True
        return self._group.connection.execute(sql, values)

    @property
    def session(self) -> Any:
        """A SQLModel session joined to the group's transaction, opened only when somebody asks for it."""
        self._group.settle()
        self._changed = True
        return self._group.session()

    def part(self, name: str, make: Callable[[Unit], Part]) -> Part:
        """Something the group shares and flushes once, such as the head of the ledger; made by its first user."""
        return cast("Part", self._group.part(name, make, self))

    def on_undo(self, undo: Callable[[], object]) -> None:
        """How to take back in memory what a part just did, should this unit or savepoint fail."""
        self._undo.append(undo)

    # -- failing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Effects inside are kept together or not at all."""
        self._group.savepoint()
        mark, changed = self.mark(), self._changed
        self._changed = False
        try:
            yield
            self._group.settle()
        except BaseException:
            self.take_back(mark)
            self._group.back_to_savepoint(changed=self._changed)
            self._changed = changed
            raise
        self._changed |= changed
        self._group.release()

    def guarded(self, call: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """Call what may break and be survived: with a savepoint only where a unit of this group has broken before.

        An error in a query ends the transaction on PostgreSQL; the group is then run again, each unit by itself.
        """
        if not self._group.cautious:
            return call(*args)
        with self.savepoint():
            return call(*args)

    def mark(self) -> int:
        """Where the unit stands in memory, for `take_back`."""
        return len(self._undo)

    def take_back(self, mark: int = 0) -> None:
        """Undo in memory everything since the mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def abandon(self) -> bool:
        """Take back what is in memory; true if that was all, false if the database itself was changed."""
        self.take_back()
        return not self._changed
