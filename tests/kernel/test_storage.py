"""The store: one keeper a file, looks that change nothing, a full disk, an old engine.

Its schema is in ``test_schema.py``; what only PostgreSQL can do wrong in ``test_shared_store.py``.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from deedbox import Unit
from deedbox.govern.claims import HANDED
from deedbox.govern.limits import QUOTAS
from deedbox.refusals import Refusal, Unavailable
from deedbox.storage.database import Database, Reader, sole_keeper
from deedbox.storage.migrate import KERNEL, upgrade
from deedbox.testing import a_node

WRITE = "insert into govern_quota (key, used_until) values (:key, 1)"


def asked(reader: Reader, sql: str) -> list[Any]:
    return reader.all(sql)


def counted(asking: Any) -> int:
    return int(asking.one("select count(*) as n from govern_quota").n)


# --- one keeper ------------------------------------------------------------------------------------------------------

KEEPER = """
import sys
from deedbox.refusals import Refusal
from deedbox.storage.database import Database
try:
    Database(sys.argv[1]).close()
    print("opened")
except Refusal as no:
    print(no.code, no.status)
"""


def try_from_another_process(url: str) -> str:
    command = [sys.executable, "-c", KEEPER, url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_an_sqlite_file_has_one_keeper(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    first = Database(url)
    with pytest.raises(Unavailable, match="database_in_use"):
        Database(url)
    with pytest.raises(Unavailable, match="database_in_use"), sole_keeper(url):
        pass
    assert try_from_another_process(url) == "database_in_use 503"
    first.close()
    assert try_from_another_process(url) == "opened"


def test_a_url_of_no_known_engine_is_refused() -> None:
    for url in ("mysql://somewhere/x", "deedbox.db", "sqlite://relative.db"):
        with pytest.raises(Refusal, match="unknown_database"):
            Database(url)


# --- reading and writing ---------------------------------------------------------------------------------------------


async def test_a_look_sees_what_is_committed_and_changes_nothing(database: Database) -> None:
    await database.run(lambda unit: unit.change(WRITE, key="a"))
    assert await database.read(lambda reader: [row.key for row in reader.all("select key from govern_quota")]) == ["a"]
    for sql in ("insert into govern_quota (key, used_until) values ('b', 1)", "delete from govern_quota"):
        with pytest.raises(Exception, match="read"):
            await database.read(asked, f"{sql} returning key")
    assert await database.read(counted) == 1


async def test_looks_run_beside_one_another_and_beside_a_unit(database: Database) -> None:
    meeting = threading.Barrier(3, timeout=5)

    def look(reader: Reader) -> int:
        meeting.wait()
        return counted(reader)

    assert await asyncio.gather(*(database.read(look) for _ in range(3))) == [0, 0, 0]


async def test_a_closed_store_refuses(database_url: str) -> None:
    database = Database(database_url)
    await asyncio.to_thread(database.close)
    with pytest.raises(Unavailable, match="store_closed"):
        await database.run(lambda unit: None)


async def test_sqlite_syncs_every_commit_of_its_write_ahead_log(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'synced.db'}")

    def pragmas(asking: Any) -> dict[str, Any]:
        return {name: asking.one(f"pragma {name}")[0] for name in ("journal_mode", "synchronous", "query_only")}

    try:
        assert await database.run(pragmas) == {"journal_mode": "wal", "synchronous": 2, "query_only": 0}
        assert await database.read(pragmas) == {"journal_mode": "wal", "synchronous": 2, "query_only": 1}
        checkpointing = await database.read(asked, "pragma wal_autocheckpoint")
        assert checkpointing == [(0,)], "only the writer moves the log into the file (fed:G2)"
    finally:
        await asyncio.to_thread(database.close)


@pytest.mark.case("fed:G1")
async def test_a_writing_transaction_takes_the_lock_before_it_reads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'locked.db'}"
    upgrade(url, {"kernel": KERNEL})
    database = Database(url)
    said: list[str] = []
    database._writer._connection._raw.set_trace_callback(said.append)  # type: ignore[attr-defined]
    other = sqlite3.connect(tmp_path / "locked.db", isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    other.execute("insert into govern_quota (key, used_until) values ('theirs', 1)")
    threading.Timer(0.2, lambda: other.execute("commit")).start()

    def reads_then_writes(unit: Unit) -> int:
        found = counted(unit)
        unit.change(WRITE, key="ours")
        return found

    try:
        assert await database.run(reads_then_writes) == 1
        assert said[0].lower() == "begin immediate"
    finally:
        await asyncio.to_thread(database.close)
        other.close()


# --- a store that fails ----------------------------------------------------------------------------------------------


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[Database]:
    """An SQLite database whose file may not grow."""
    url = f"sqlite:///{tmp_path / 'full.db'}"
    upgrade(url, {"kernel": KERNEL})
    database = Database(url)
    await database.run(lambda unit: unit.one("pragma max_page_count = 1"))
    yield database
    await asyncio.to_thread(database.close)


def grow(unit: Unit) -> None:
    unit.change("insert into govern_quota (key, used_until) values (:key, 1)", key="x" * 200_000)


def note_much(unit: Unit) -> None:
    unit.note(HANDED, ("x" * 200_000, 1))


def put_much(unit: Unit) -> None:
    unit.put(QUOTAS, {"key": "x" * 200_000, "used_until": 1})


@pytest.mark.case("fed:C7")
@pytest.mark.parametrize("work", [grow, note_much, put_much])
async def test_a_full_disk_is_a_503_and_keeps_nothing(full: Database, work: Callable[[Unit], None]) -> None:
    with pytest.raises(Unavailable) as down:
        await full.run(work)
    assert (down.value.code, down.value.status) == ("store_unavailable", 503)
    assert isinstance(down.value.__cause__, sqlite3.OperationalError)
    assert await full.read(lambda reader: reader.all("select key from govern_quota")) == []


async def test_nothing_after_a_full_disk_is_kept_by_accident(full: Database) -> None:
    """SQLite ends the transaction by itself, and what followed would be kept statement by statement."""

    def goes_on(unit: Unit) -> None:
        unit.change(WRITE, key="before")
        try:
            with unit.savepoint():
                grow(unit)
        except Exception:
            unit.change(WRITE, key="after")

    with pytest.raises(Unavailable, match="store_unavailable"):
        await full.run(goes_on)
    assert await full.read(lambda reader: reader.all("select key from govern_quota")) == []
    await full.run(lambda unit: unit.one("pragma max_page_count = 100000"))
    await full.run(grow)


# --- what an operator is told ----------------------------------------------------------------------------------------


@pytest.mark.case("fed:G2")
@pytest.mark.parametrize(("version", "told"), [((3, 51, 2), True), ((3, 51, 3), False), ((3, 52, 0), False)])
async def test_an_sqlite_with_the_reset_bug_is_told_of_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], version: Any, told: bool
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    async with a_node(tmp_path, "alpha.example", facets={}):
        pass
    assert ("outdated_database" in capfd.readouterr().err) is told
