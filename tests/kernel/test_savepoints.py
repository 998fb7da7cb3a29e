"""Savepoints, and sessions that join a unit: all of what is inside is kept, or nothing is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlmodel import select

from deedbox import Unit
from deedbox.govern.claims import HANDED
from deedbox.govern.limits import QUOTAS, Quota
from deedbox.refusals import Refusal
from deedbox.storage.database import Database

READ = "select used_until from govern_quota where key = :key"
WRITE = "insert into govern_quota (key, used_until) values (:key, :mark)"


def put(unit: Unit, key: str, mark: int = 1) -> None:
    unit.put(QUOTAS, {"key": key, "used_until": mark})


def mark_of(unit: Unit, key: str) -> int | None:
    row = unit.fact(QUOTAS, key)
    return None if row is None else int(row["used_until"])


def change(unit: Unit, key: str, mark: int = 1) -> int:
    return unit.change(WRITE, key=key, mark=mark)


async def stored(database: Database, key: str) -> int | None:
    row = await database.read(lambda reader: reader.one(READ, key=key))
    return None if row is None else int(row.used_until)


async def together(database: Database, *units: Callable[[Unit], Any]) -> list[Any]:
    """Run units in one group, which waits behind another until it is whole; a failing one's end is its exception."""
    begun, whole = threading.Event(), threading.Event()

    def holds(unit: Unit) -> None:
        begun.set()
        if unit.engine == "postgresql":  # there units run on a thread of their own
            assert whole.wait(5)

    held = asyncio.ensure_future(database.run(holds))
    assert await asyncio.to_thread(begun.wait, 5)
    waiting = [asyncio.ensure_future(database.run(work)) for work in units]
    whole.set()
    await held
    return await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_savepoint_takes_everything_inside_back(database: Database) -> None:
    def tries(unit: Unit) -> tuple[int | None, int | None]:
        put(unit, "kept", 1)
        change(unit, "changed", 1)
        with suppress(Refusal), unit.savepoint():
            put(unit, "kept", 2)
            put(unit, "inside", 2)
            unit.note(HANDED, ("inside", 1))
            unit.change("update govern_quota set used_until = 2 where key = 'changed'")
            raise Refusal("no")
        return mark_of(unit, "kept"), mark_of(unit, "inside")

    assert await database.run(tries) == (1, None)
    assert [await stored(database, key) for key in ("kept", "inside", "changed")] == [1, None, 1]
    assert await database.run(lambda unit: unit.fact(HANDED, "inside")) is None


async def test_a_savepoint_that_ends_well_keeps_everything_inside(database: Database) -> None:
    def does(unit: Unit) -> None:
        with unit.savepoint():
            put(unit, "put")
            change(unit, "changed")
            with suppress(Refusal), unit.savepoint():
                change(unit, "nested")
                raise Refusal("only the nested one")

    await database.run(does)
    assert [await stored(database, key) for key in ("put", "changed", "nested")] == [1, 1, None]


async def test_what_a_savepoint_read_of_its_own_changes_is_forgotten_with_them(database: Database) -> None:
    await database.run(put, "a", 1)

    def tries(unit: Unit) -> int | None:
        with suppress(Refusal), unit.savepoint():
            unit.change("update govern_quota set used_until = 2 where key = 'a'")
            assert mark_of(unit, "a") == 2
            raise Refusal("no")
        return mark_of(unit, "a")

    assert await database.run(tries) == 1


async def test_a_failed_savepoint_leaves_the_unit_free_to_fail_without_a_second_run(database: Database) -> None:
    runs = []

    def tries(unit: Unit) -> None:
        runs.append(1)
        with suppress(Refusal), unit.savepoint():
            change(unit, "a")
            raise Refusal("inside")
        raise Refusal("outside")

    with pytest.raises(Refusal, match="outside"):
        await database.run(tries)
    assert len(runs) == 1


async def test_a_session_joins_the_unit(database: Database) -> None:
    def writes(unit: Unit) -> None:
        unit.session.add(Quota(key="orm", used_until=5))

    def reads(unit: Unit) -> tuple[int, Any]:
        found = unit.session.exec(select(Quota).where(Quota.key == "orm")).one()
        return found.used_until, unit.all(READ, key="orm")[0].used_until

    _, seen = await together(database, writes, reads)
    assert seen == (5, 5)
    assert await stored(database, "orm") == 5


async def test_a_session_is_rolled_back_with_its_unit_and_cannot_commit_by_itself(database: Database) -> None:
    def writes(unit: Unit) -> None:
        unit.session.add(Quota(key="orm", used_until=5))
        unit.session.commit()
        raise Refusal("no")

    with pytest.raises(Refusal):
        await database.run(writes)
    assert await stored(database, "orm") is None


async def test_a_session_in_a_failed_savepoint_remembers_nothing(database: Database) -> None:
    await database.run(put, "a", 1)

    def tries(unit: Unit) -> list[int]:
        with suppress(Refusal), unit.savepoint():
            unit.session.get(Quota, "a").used_until = 2
            unit.session.add(Quota(key="b", used_until=2))
            unit.session.flush()
            raise Refusal("no")
        return [row.used_until for row in unit.session.exec(select(Quota).order_by(Quota.key)).all()]

    assert await database.run(tries) == [1]
    assert await stored(database, "b") is None


@pytest.mark.parametrize("flushed", [True, False])
async def test_a_session_that_breaks_a_constraint_in_a_savepoint_loses_that_alone(
    database: Database, flushed: bool
) -> None:
    await database.run(put, "a", 1)

    def tries(unit: Unit) -> str:
        change(unit, "kept")
        try:
            with unit.savepoint():
                unit.session.add(Quota(key="b", used_until=2))
                unit.session.flush()
                unit.session.add(Quota(key="a", used_until=2))
                if flushed:
                    unit.session.flush()
        except Exception as error:
            return type(error).__name__
        return "no error"

    assert await database.run(tries) == "IntegrityError"
    assert [await stored(database, key) for key in ("a", "b", "kept")] == [1, None, 1]


async def test_sessions_are_opened_only_when_somebody_asks(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    whole = database._writer._connection.session

    def counted() -> Any:
        opened.append(1)
        return whole()

    monkeypatch.setattr(database._writer._connection, "session", counted)
    await together(database, lambda unit: put(unit, "a"), lambda unit: change(unit, "b"))
    assert opened == []
    await together(database, lambda unit: unit.session.get(Quota, "a"), lambda unit: unit.session.get(Quota, "b"))
    assert opened == [1]
