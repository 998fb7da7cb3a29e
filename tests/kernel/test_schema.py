"""Schemas: the same by migrations and from the models, a history a facet, and refused when behind or ahead."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deedbox.facets import installed
from deedbox.refusals import Refusal, Unavailable
from deedbox.storage.database import Database, sole_keeper, sqlite_path
from deedbox.storage.migrate import KERNEL, histories, require_current, upgrade
from deedbox.storage.tables import metadata

GROWING = ("ledger_entry", "ledger_event", "ledger_batch", "ledger_checkpoint", "ledger_tile", "ledger_invocation")
WRITE = "insert into govern_quota (key, used_until) values (:key, 1)"


def everything() -> dict[str, Path]:
    """Every history there is: the kernel's and that of each installed facet with tables."""
    classes = [point.load() for _, point in sorted(installed().items())]
    return histories((each.facet.name, each.facet.migrations) for each in classes)


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
    for ask in (require_current, upgrade):
        with pytest.raises(Refusal) as ahead:
            ask(database_url, wanted)
        assert ahead.value.code == "schema_ahead"
        assert ahead.value.next_step.startswith("install the release that made it")


def test_no_database_is_no_schema(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as missing:
        require_current(f"sqlite:///{tmp_path / 'none.db'}", {"kernel": KERNEL})
    assert missing.value.code == "schema_missing"
    assert "deedbox init --upgrade" in missing.value.next_step
    assert not (tmp_path / "none.db").exists()


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
