"""Groups: what arrives while a commit runs shares the next one, and nobody is answered before it (decisions 5, 34)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from deedbox import Unit
from deedbox.refusals import Refusal
from deedbox.storage.database import Database
from deedbox.storage.migrate import KERNEL, upgrade
from deedbox.storage.writer import GROUP_LIMIT
from deedbox.testing import FrozenClock

WRITE = "insert into govern_quota (key, used_until) values (:key, 1)"


class Commits:
    """Counts the commits of a database."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        connection = database._writer._connection
        self.count = 0
        self._commit = connection.commit
        monkeypatch.setattr(connection, "commit", self)

    def __call__(self) -> None:
        self._commit()
        self.count += 1


def write(unit: Unit, key: str) -> int:
    unit.change(WRITE, key=key)
    return unit.group


async def written(database: Database) -> int:
    return await database.read(lambda reader: len(reader.all("select key from govern_quota")))


async def test_units_that_wait_share_one_commit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits(database, monkeypatch)
    groups = await asyncio.gather(*(database.run(write, str(number)) for number in range(100)))
    assert len(set(groups)) == commits.count <= 4
    assert groups == sorted(groups)
    assert await written(database) == 100


async def test_a_group_has_a_limit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits(database, monkeypatch)
    count = 2 * GROUP_LIMIT + 1
    groups = await asyncio.gather(*(database.run(write, str(number)) for number in range(count)))
    assert max(groups.count(group) for group in groups) <= GROUP_LIMIT
    assert commits.count >= 3
    assert await written(database) == count


async def test_a_lonely_unit_waits_for_nobody(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits(database, monkeypatch)
    for number in range(3):
        await database.run(write, str(number))
    assert commits.count == 3


async def test_an_answer_means_that_it_is_kept(database: Database) -> None:
    async def ask(key: str) -> int:
        await database.run(write, key)
        return await database.read(
            lambda reader: len(reader.all("select 1 as one from govern_quota where key = :key", key=key))
        )

    assert await asyncio.gather(*(ask(str(number)) for number in range(20))) == [1] * 20


async def test_an_answer_comes_after_the_commit_even_for_a_no(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Commits(database, monkeypatch)
    seen: list[int] = []

    def refuses(unit: Unit) -> None:
        raise Refusal("no")

    async def ask(work: Any, *given: Any) -> None:
        with suppress(Refusal):
            await database.run(work, *given)
        seen.append(commits.count)

    await asyncio.gather(ask(refuses), ask(write, "a"))
    assert min(seen) >= 1


async def test_a_caller_that_gave_up_does_not_undo_its_unit(database: Database) -> None:
    given_up = asyncio.ensure_future(database.run(write, "given up"))
    stays = asyncio.ensure_future(database.run(write, "stays"))
    await asyncio.sleep(0)
    given_up.cancel()
    await stays
    assert given_up.cancelled()
    assert await written(database) == 2


async def test_a_group_has_one_instant(database: Database, clock: FrozenClock) -> None:
    def now(unit: Unit) -> int:
        clock.advance(1)
        return unit.now

    before = clock.now()
    first = await database.run(now)
    assert first == before
    assert await database.run(now) == before + 1000


async def test_units_take_their_arguments_by_position(database: Database) -> None:
    with pytest.raises(TypeError):
        database.run(write, key="a")


async def test_closing_finishes_what_waits(database_url: str) -> None:
    await asyncio.to_thread(upgrade, database_url, {"kernel": KERNEL})
    database = Database(database_url)
    waiting = [asyncio.ensure_future(database.run(write, str(number))) for number in range(50)]
    await asyncio.sleep(0)
    await asyncio.to_thread(database.close)
    assert len(await asyncio.gather(*waiting)) == 50
    again = Database(database_url)
    assert await written(again) == 50
    await asyncio.to_thread(again.close)
