"""The few column types migrations use, the same on both engines, and append-only triggers."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op


def whole() -> sa.types.TypeEngine[Any]:
    """A 64-bit integer; on SQLite the type that makes a primary key the row id."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def plain_text() -> sa.types.TypeEngine[Any]:
    """Text compared byte by byte on both engines, so that ranges of keys mean the same."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def text(name: str, *, null: bool = False, key: bool = False) -> sa.Column[Any]:
    return sa.Column(name, plain_text(), primary_key=key, nullable=null)


def integer(name: str, *, null: bool = False, key: bool = False) -> sa.Column[Any]:
    return sa.Column(name, whole(), primary_key=key, nullable=null, autoincrement=False)


def number(name: str) -> sa.Column[Any]:
    """An integer primary key the database gives."""
    return sa.Column(name, whole(), primary_key=True, nullable=False, autoincrement=True)


def flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def blob(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary(), nullable=null)


def append_only(table: str) -> None:
    """Neither update nor delete, whoever asks (RFC 9162 in spirit: nothing can be silently edited)."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("update", "delete"):
            op.execute(
                f"create trigger {table}_no_{verb} before {verb} on {table}"
                f" begin select raise(abort, '{table} is append-only'); end"
            )
        return
    op.execute(
        "create or replace function deedbox_append_only() returns trigger language plpgsql as"
        " $$ begin raise exception '% is append-only', tg_table_name; end $$"
    )
    op.execute(
        f"create trigger {table}_append_only before update or delete or truncate on {table}"
        " for each statement execute function deedbox_append_only()"
    )
