"""The store: schemas both ways, one keeper a file, looks that change nothing, tables that only grow, a full disk.

Units and groups are in ``test_units.py``; what only PostgreSQL can do wrong in ``test_shared_store.py``.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deedbox import Unit
from deedbox.facets import installed
from deedbox.govern.claims import HANDED
from deedbox.govern.limits import QUOTAS
from deedbox.refusals import Refusal, Unavailable
from deedbox.storage.database import Database, Reader, sole_keeper, sqlite_path
from deedbox.storage.migrate import KERNEL, histories, require_current, upgrade
from deedbox.storage.tables import metadata
from deedbox.testing import FrozenClock, a_node

GROWING = ("ledger_entry", "ledger_event", "ledger_batch", "ledger_checkpoint", "ledger_tile", "ledger_invocation")
WRITE = "insert into govern_quota (key, used_until) values (:key, 1)"


def everything() -> dict[str, Path]:
    """Every history there is: the kernel's and that of each installed facet with tables."""
    classes = [point.load() for _, point in sorted(installed().items())]
    return histories((each.facet.name, each.facet.migrations) for each in classes)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    await asyncio.to_thread(upgrade, database_url, {"kernel": KERNEL})
    opened = Database(database_url, FrozenClock())
    yield opened
    await asyncio.to_thread(opened.close)


@contextmanager
def raw(url: str) -> Iterator[Callable[[str], None]]:
    """The database as anybody with its password or file may open it."""
    opened = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with opened.connect() as connection:

            def run(sql: str) -> None:
                connection.exec_driver_sql(sql)
                connection.commit()

            yield run
    finally:
        opened.dispose()


def asked(reader: Reader, sql: str) -> list[Any]:
    return reader.all(sql)


def counted(asking: Any) -> int:
    return int(asking.one("select count(*) as n from govern_quota").n)


# --- schemas ---------------------------------------------------------------------------------------------------------


def families(inspector: Any, table: str) -> dict[str, tuple[str, bool]]:
    """Each column's family of types and whether it may be null."""
    return {column["name"]: (family(column["type"]), column["nullable"]) for column in inspector.get_columns(table)}


def family(kind: Any) -> str:
    families = {sa.Boolean: "flag", sa.Integer: "integer", sa.LargeBinary: "bytes", sa.String: "text", sa.Float: "real"}
    return next((name for known, name in families.items() if isinstance(kind, known)), str(kind))


def described(url: str, build: Callable[[Any], None]) -> dict[str, Any]:
    opened = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        build(opened)
        found = sa.inspect(opened)
        tables = {name for name in found.get_table_names() if not name.endswith("_schema_version")}
        return {name: (families(found, name), found.get_pk_constraint(name)["constrained_columns"]) for name in tables}
    finally:
        opened.dispose()


def test_migrations_and_models_make_the_same_schema(database_url: str) -> None:
    wanted = everything()
    migrated = described(database_url, lambda _: upgrade(database_url, wanted))

    def remake(opened: Any) -> None:
        with opened.begin() as connection:
            for name in migrated:
                connection.exec_driver_sql(f"drop table {name}")
        owned = [table for table in metadata().sorted_tables if table.name.partition("_")[0] in owners]
        metadata().create_all(opened, owned)

    owners = {"ledger", "govern", "identity", "jobs", "envelope", *wanted}
    modelled = described(database_url, remake)
    assert len(modelled) > 15
    assert migrated == modelled


def step(folder: Path, number: int, *statements: str) -> Path:
    folder.mkdir(exist_ok=True)
    before = f'"{number - 1:04}"' if number > 1 else None
    body = "\n".join(f"    op.execute({statement!r})" for statement in statements)
    text = f"from alembic import op\nrevision = '{number:04}'\ndown_revision = {before}\n\n\ndef upgrade():\n{body}\n"
    (folder / f"{number:04}_step.py").write_text(text)
    return folder


def test_a_facet_that_is_switched_off_is_in_nobodys_way(tmp_path: Path, database_url: str) -> None:
    one = step(tmp_path / "one", 1, "create table one_thing (id integer)")
    two = step(tmp_path / "two", 1, "create table two_thing (id integer)")
    upgrade(database_url, {"kernel": KERNEL, "one": one, "two": two})
    step(two, 2, "alter table two_thing add column more integer")
    upgrade(database_url, {"kernel": KERNEL, "two": two})
    require_current(database_url, {"kernel": KERNEL, "two": two})
    step(one, 2, "alter table one_thing add column more integer")
    with pytest.raises(Refusal, match="schema_behind"):
        require_current(database_url, {"kernel": KERNEL, "one": one})
    upgrade(database_url, {"kernel": KERNEL, "one": one, "two": two})
    with raw(database_url) as run:
        run("insert into one_thing (id, more) values (1, 2)")


def test_an_upgrade_that_fails_leaves_nothing_behind(tmp_path: Path, database_url: str) -> None:
    one = step(tmp_path / "one", 1, "create table one_thing (id integer)", "create nonsense")
    with pytest.raises(sa.exc.DBAPIError):
        upgrade(database_url, {"kernel": KERNEL, "one": one})
    require_current(database_url, {"kernel": KERNEL})
    step(one, 1, "create table one_thing (id integer)")
    upgrade(database_url, {"kernel": KERNEL, "one": one})
    require_current(database_url, {"kernel": KERNEL, "one": one})


def test_two_processes_may_upgrade_at_once(database_url: str) -> None:
    ends: list[BaseException | None] = []

    def upgrades() -> None:
        try:
            with sole_keeper(database_url):
                upgrade(database_url, everything())
            ends.append(None)
        except Unavailable:
            ends.append(None)  # an embedded database has one keeper, and it is not us

    threads = [threading.Thread(target=upgrades) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert ends == [None] * 3
    require_current(database_url, everything())


def test_a_schema_behind_or_ahead_is_refused_with_what_to_do(tmp_path: Path, database_url: str) -> None:
    one = step(tmp_path / "one", 1, "create table one_thing (id integer)")
    wanted = {"kernel": KERNEL, "one": one}
    upgrade(database_url, {"kernel": KERNEL})
    with pytest.raises(Refusal) as behind:
        require_current(database_url, wanted)
    assert (behind.value.code, behind.value.next_step) == ("schema_behind", "run: deedbox init --upgrade")
    assert "facet one: the database is at nothing, this release wants 0001" in behind.value.detail
    upgrade(database_url, wanted)
    require_current(database_url, wanted)
    with raw(database_url) as run:
        run("update one_schema_version set version_num = '0002'")
    with pytest.raises(Refusal, match="schema_ahead"):
        require_current(database_url, wanted)


def test_no_database_is_no_schema(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as missing:
        require_current(f"sqlite:///{tmp_path / 'none.db'}", {"kernel": KERNEL})
    assert (missing.value.code, missing.value.next_step) == ("schema_missing", "run: deedbox init")
    assert not (tmp_path / "none.db").exists()


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


# --- tables that only grow -------------------------------------------------------------------------------------------


def values(url: str, table: str) -> str:
    """A row of 1s and empty texts for any table."""
    plain = {"integer": "1", "text": "''", "flag": "true", "bytes": "x'00'" if sqlite_path(url) else "'\\x00'::bytea"}
    opened = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    columns = families(sa.inspect(opened), table)
    opened.dispose()
    return f"({', '.join(columns)}) values ({', '.join(plain[kind] for kind, _ in columns.values())})"


@pytest.mark.parametrize("table", [*GROWING, "inbox_exchange"])
def test_what_only_grows_can_be_neither_changed_nor_cut_whoever_asks(database_url: str, table: str) -> None:
    upgrade(database_url, everything())
    row = values(database_url, table)
    changes = [f"update {table} set {row[1 : row.index(',')]} = 2", f"delete from {table}"]
    changes += [] if sqlite_path(database_url) else [f"truncate {table}"]
    with raw(database_url) as run:
        run(f"insert into {table} {row}")
    for change in changes:
        with raw(database_url) as run, pytest.raises(sa.exc.DBAPIError, match="append-only"):
            run(change)


async def test_replacing_is_changing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'grown.db'}"
    upgrade(url, {"kernel": KERNEL})
    database = Database(url)
    insert = "insert {} into ledger_entry (seq, header, leaf) values (1, x'00', x'00')"
    try:
        await database.run(lambda unit: unit.change(insert.format("")))
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            await database.run(lambda unit: unit.change(insert.format("or replace")))
    finally:
        await asyncio.to_thread(database.close)


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
