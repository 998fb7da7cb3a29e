"""Schemas: one Alembic history and one version table a facet, so that facets can be switched off (decision 6).

Revisions are numbered files in the facet's own folder, ``0001_name.py`` with ``revision = "0001"``. Serving checks
by file name and one query, without Alembic, that the schema is neither behind nor ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deedbox.refusals import Fault, Refusal
from deedbox.storage.connection import Connection
from deedbox.storage.database import connect, sqlite_path

KERNEL = Path(__file__).parent / "migrations"
BEHIND, AHEAD = "schema_behind", "schema_ahead"
NO_WAY_DOWN = "install the release that made it, or restore the backup made before"
UPGRADE_LOCK = 0x64656565
_ALONE = f"select pg_advisory_xact_lock({UPGRADE_LOCK})"


def head(folder: Path) -> str:
    """The newest revision a folder offers: the number its last file begins with."""
    return max(path.name[:4] for path in folder.glob("[0-9][0-9][0-9][0-9]_*.py"))


def version_table(facet: str) -> str:
    return f"{facet}_schema_version"


def histories(facets: Iterable[tuple[str, Path | None]]) -> dict[str, Path]:
    """Every history by name, the kernel's first."""
    return {"kernel": KERNEL} | {name: folder for name, folder in facets if folder is not None}


def standing(connection: Connection, facet: str) -> str | None:
    """The revision a database has of a facet, or nothing if it has none."""
    table = version_table(facet)
    catalog = (
        "select name from sqlite_master where type = 'table' and name = :name"
        if connection.engine == "sqlite"
        else "select tablename as name from pg_tables where schemaname = current_schema() and tablename = :name"
    )
    if not connection.rows(catalog, {"name": table}):
        return None
    found = connection.rows(f"select version_num from {table}", {})  # noqa: S608  # the name is ours
    return str(found[0].version_num) if found else None


def require_current(url: str, wanted: Mapping[str, Path]) -> None:
    """Refuse to work behind or ahead of the schema; says which command helps."""
    if (path := sqlite_path(url)) is not None and not path.exists():
        raise no_database(path)
    for different in _differences(url, wanted):
        raise different


def no_database(path: Path) -> Refusal:
    return Refusal(
        "schema_missing",
        500,
        f"there is no database {path}",
        next_step="restore it; or run: deedbox init --upgrade, which begins an empty one with new keys",
        fault=Fault.OURS,
    )


def _differences(url: str, wanted: Mapping[str, Path]) -> list[Refusal]:
    """What is not at its head, a database that is further than us first: no command of ours helps there."""
    connection = connect(url, writing=False)
    try:
        found = [(facet, standing(connection, facet), head(folder)) for facet, folder in wanted.items()]
    finally:
        connection.close()
    ahead = [_difference(AHEAD, *each, NO_WAY_DOWN) for each in found if each[1] and each[1] > each[2]]
    behind = [_difference(BEHIND, *each, "run: deedbox init --upgrade") for each in found if (each[1] or "") < each[2]]
    return ahead + behind


def _difference(code: str, facet: str, have: str | None, want: str, next_step: str) -> Refusal:
    said = f"facet {facet}: the database is at {have or 'nothing'}, this release wants {want}"
    return Refusal(code, 500, said, next_step=next_step, fault=Fault.OURS)


def upgrade(url: str, wanted: Mapping[str, Path]) -> None:
    """Bring every history to its head, each in a transaction of its own; refuses one that is ahead of us."""
    if (path := sqlite_path(url)) is None or path.exists():
        for different in _differences(url, wanted):
            if different.code == AHEAD:
                raise different
    engine = _engine(url)
    try:
        for facet, folder in wanted.items():
            with engine.begin() as connection:
                _upgrade_one(connection, facet, folder)
    finally:
        engine.dispose()


def _engine(url: str) -> Any:
    """An engine whose transactions hold schema changes too, one process at a time."""
    from sqlalchemy import create_engine, event

    if (path := sqlite_path(url)) is None:
        connect(url, writing=False).close()  # a server that does not answer is refused in our words
        engine = create_engine(f"postgresql+psycopg://{url.partition('://')[2]}")
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(_ALONE))
        return engine
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url)
    event.listen(engine, "connect", _unmanaged)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin immediate"))
    return engine


def _unmanaged(raw: Any, _: Any) -> None:
    """Leave transactions to us: the driver begins none before a change of schema."""
    raw.isolation_level = None
    raw.execute("pragma journal_mode=wal")


def _upgrade_one(connection: Any, facet: str, folder: Path) -> None:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(KERNEL.parent), version_locations=[str(folder)])
    steps = EnvironmentContext(
        Config(),
        script,
        fn=lambda revision, _: script._upgrade_revs("head", revision),
        destination_rev="head",
    )
    with steps:
        steps.configure(
            connection=connection,
            version_table=version_table(facet),
            render_as_batch=True,
            transactional_ddl=True,
        )
        with steps.begin_transaction():
            steps.run_migrations()
