"""Units: what one sees of another, what a failure undoes, and that one unit's fault costs nobody else anything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from deedbox import Unit
from deedbox.govern.claims import CLAIMS, HANDED, Claim, Handed
from deedbox.govern.limits import QUOTAS
from deedbox.refusals import Refusal
from deedbox.storage.database import Database

READ = "select used_until from govern_quota where key = :key"
WRITE = "insert into govern_quota (key, used_until) values (:key, :mark)"


def put(unit: Unit, key: str, mark: int = 1) -> None:
    unit.put(QUOTAS, {"key": key, "used_until": mark})


def mark_of(unit: Unit, key: str) -> int | None:
    row = unit.fact(QUOTAS, key)
    return None if row is None else int(row["used_until"])


def seen_from(unit: Unit, key: str) -> tuple[int | None, int]:
    return mark_of(unit, key), unit.group


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


async def test_a_later_unit_sees_what_earlier_ones_put(database: Database) -> None:
    def first(unit: Unit) -> int:
        put(unit, "a", 7)
        return unit.group

    def second(unit: Unit) -> tuple[int, int | None]:
        return unit.group, mark_of(unit, "a")

    one, (two, seen) = await together(database, first, second)
    assert (one, seen) == (two, 7)
    assert await stored(database, "a") == 7


async def test_a_later_unit_sees_what_earlier_ones_changed(database: Database) -> None:
    def second(unit: Unit) -> Any:
        return unit.all(READ, key="a")[0].used_until

    assert await together(database, lambda unit: change(unit, "a", 3), second) == [1, 3]


async def test_rows_announced_are_asked_for_once_a_group(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await database.run(put, "a", 4)
    asked = []
    having = database._writer._connection.having

    def counted(wanted: Any) -> Any:
        asked.append(wanted)
        return having(wanted)

    monkeypatch.setattr(database._writer._connection, "having", counted)
    announced = [((QUOTAS, "a"), (QUOTAS, "b")), ((QUOTAS, "a"),)] * 4
    found = await asyncio.gather(*(database.run_asking(asks, seen_from, "a") for asks in announced))
    assert {mark for mark, _ in found} == {4}
    assert len(asked) == len({group for _, group in found})


async def test_what_a_failed_unit_put_and_noted_is_undone(database: Database) -> None:
    await database.run(put, "a", 4)

    def fails(unit: Unit) -> None:
        assert mark_of(unit, "a") == 4
        put(unit, "a", 9)
        put(unit, "b", 9)
        unit.note(HANDED, ("noted", 1))
        raise Refusal("no")

    failed, a, b = await together(database, fails, lambda unit: mark_of(unit, "a"), lambda unit: mark_of(unit, "b"))
    assert (failed.code, a, b) == ("no", 4, None)
    assert (await stored(database, "a"), await stored(database, "b")) == (4, None)
    assert await database.run(lambda unit: unit.fact(HANDED, "noted")) is None


async def test_a_put_taken_back_leaves_a_row_unasked_and_not_absent(database: Database) -> None:
    await database.run(put, "a", 4)

    def puts_unread(unit: Unit) -> None:
        put(unit, "a", 9)
        raise Refusal("no")

    _, seen = await together(database, puts_unread, lambda unit: mark_of(unit, "a"))
    assert seen == 4


async def test_a_failed_unit_that_changed_nothing_costs_no_second_run(database: Database) -> None:
    runs = []

    def fails(unit: Unit) -> None:
        runs.append("failing")
        raise ValueError("before anything was written")

    def works(unit: Unit) -> None:
        runs.append("working")
        put(unit, "a")

    failed, worked = await together(database, fails, works)
    assert isinstance(failed, ValueError)
    assert worked is None
    assert runs == ["failing", "working"]
    assert await stored(database, "a") == 1


async def test_a_unit_that_fails_after_a_change_costs_the_others_nothing(database: Database) -> None:
    def spoils(unit: Unit) -> None:
        change(unit, "spoilt")
        raise ValueError("after a change")

    before, spoilt, after = await together(
        database, lambda unit: change(unit, "before"), spoils, lambda unit: put(unit, "after")
    )
    assert (before, after) == (1, None)
    assert isinstance(spoilt, ValueError)
    assert [await stored(database, key) for key in ("before", "spoilt", "after")] == [1, None, 1]


async def test_a_query_that_fails_costs_the_others_nothing_even_if_nobody_noticed(database: Database) -> None:
    """PostgreSQL ends the transaction at the first error, and would answer the commit with a roll-back."""

    def swallows(unit: Unit) -> str:
        with suppress(Exception):
            unit.guarded(unit.all, "select nothing from nowhere")
        put(unit, "swallowing")
        return "went on"

    before, swallowed, after = await together(
        database, lambda unit: put(unit, "before"), swallows, lambda unit: change(unit, "after")
    )
    assert (before, swallowed, after) == (None, "went on", 1)
    assert [await stored(database, key) for key in ("before", "swallowing", "after")] == [1, 1, 1]


async def test_an_ask_that_cannot_be_said_costs_the_others_nothing(database: Database) -> None:
    key = "a lone surrogate \ud800"
    plug = asyncio.ensure_future(database.run(put, "plug"))
    failed = asyncio.ensure_future(database.run_asking(((QUOTAS, key),), mark_of, key))
    good = asyncio.ensure_future(database.run_asking(((QUOTAS, "good"),), put, "good"))
    ends = await asyncio.gather(plug, failed, good, return_exceptions=True)
    assert [isinstance(end, Exception) for end in ends] == [False, True, False]
    assert await stored(database, "good") == 1


async def test_a_note_that_cannot_be_written_fails_its_own_unit_alone(database: Database) -> None:
    plug, bad, good = await together(
        database,
        lambda unit: put(unit, "plug"),
        lambda unit: unit.note(HANDED, ("no number", "x\ud800")),
        lambda unit: put(unit, "good"),
    )
    assert (plug, good) == (None, None)
    assert isinstance(bad, Exception)
    assert await stored(database, "good") == 1


async def test_two_notes_that_cannot_both_be_cost_one_unit(database: Database) -> None:
    """Run again and again as a group they fail for ever, as if another process had been first; apart, one is kept."""

    def note(unit: Unit) -> None:
        unit.note(HANDED, ("the same key", 1))

    ends = await together(database, note, lambda unit: put(unit, "beside"), note)
    assert [isinstance(end, Exception) for end in ends] == [False, False, True]
    assert await stored(database, "beside") == 1


@pytest.mark.case("fed:D7")
async def test_a_commit_that_fails_fails_all_and_keeps_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = database._writer

    def fails() -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(writer._connection, "commit", fails)
    ends = await asyncio.gather(database.run(put, "a"), database.run(change, "b"), return_exceptions=True)
    monkeypatch.undo()
    assert [type(end) for end in ends] == [OSError, OSError]
    assert (await stored(database, "a"), await stored(database, "b")) == (None, None)
    await database.run(put, "a")
    assert await stored(database, "a") == 1


@pytest.mark.case("fed:E7")
async def test_a_change_says_how_many_rows_it_touched(database: Database) -> None:
    await together(database, *(lambda unit, key=key: change(unit, key) for key in "abc"))
    updated = "update govern_quota set used_until = 2 where key in (select key from named)"
    chosen = "with named as (select key from govern_quota where key < :below)"

    def counts(unit: Unit) -> list[int]:
        return [unit.change(f"{chosen} {updated}", below=below) for below in ("c", "a")]

    assert await database.run(counts) == [2, 0]


async def test_values_survive_the_way_there_and_back(database: Database) -> None:
    row = {
        **{"key": "é\n'%s:name?", "digest": "", "state": "done", "at": 2**53, "kept_until": -1, "owner": "o"},
        **{"grp": 0, "reply": bytes(range(256)), "meta": None, "undelivered": True},
    }
    await database.run(lambda unit: unit.put(CLAIMS, row))
    found = await database.run(lambda unit: unit.fact(CLAIMS, row["key"]))
    assert found is not None
    assert {**found, "reply": bytes(found["reply"])} == row
    held = await database.run(lambda unit: unit.session.get(Claim, row["key"]))
    assert (held.undelivered, bytes(held.reply)) == (True, row["reply"])
    assert Handed.__table__.name == "govern_handed"  # type: ignore[attr-defined]
