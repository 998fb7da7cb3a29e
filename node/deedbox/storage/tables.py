"""What a facet's table looks like to Python, and the statements the hot path derives from it once.

Table classes are persistence only (SQLModel does not validate ``table=True`` classes): values enter through other
models. A table belongs to one facet, carries the facet's name and has no foreign key that leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import BigInteger, Boolean, Float, Integer, LargeBinary, MetaData, Text
from sqlalchemy.orm import declared_attr
from sqlalchemy.types import TypeEngine
from sqlmodel import SQLModel

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
SQLModel.metadata.naming_convention = NAMING


def owner_of(module: str) -> str:
    """Whose table it is: ``deedbox_inbox.tables`` → ``inbox``, ``deedbox.ledger.entry`` → ``ledger``."""
    package, _, rest = module.partition(".")
    return (rest.partition(".")[0] or "kernel") if package == "deedbox" else package.removeprefix("deedbox_")


class Table(SQLModel):
    """A facet's table; its name is the facet and the class, ``Thread`` in ``deedbox_inbox`` → ``inbox_thread``."""

    @declared_attr.directive
    def __tablename__(cls) -> str:
        return f"{owner_of(cls.__module__)}_{cls.__name__.lower()}"


def metadata() -> MetaData:
    """Every table imported so far; migrations, not this, build a schema."""
    return SQLModel.metadata


_POSTGRES_TYPES: tuple[tuple[type[TypeEngine[Any]], str], ...] = (
    (LargeBinary, "bytea"),
    (Boolean, "boolean"),
    (BigInteger, "bigint"),
    (Integer, "bigint"),
    (Float, "double precision"),
    (Text, "text"),
)


def _array_type(kind: TypeEngine[Any]) -> str:
    for known, name in _POSTGRES_TYPES:
        if isinstance(kind, known):
            return name
    return "text"


@dataclass(frozen=True, eq=False)
class Rows:
    """The statements for one table, computed once: how rows of it are noted, read by key, and put back.

    Made once a table, at module level, and told apart by identity.

    ``columns`` are all columns in the order of the class; ``key`` is the text or integer column rows are found by.
    """

    table: type[Table]
    key: str = ""
    only: tuple[str, ...] = field(default=())

    @cached_property
    def name(self) -> str:
        return str(cast(Any, self.table).__table__.name)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        every = tuple(str(column.name) for column in cast(Any, self.table).__table__.columns)
        return self.only or every

    @cached_property
    def values(self) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
        """Takes a row's values out of a dictionary, in column order; a table has at least two columns."""
        return itemgetter(*self.columns)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """PostgreSQL array element types, one a column."""
        found = cast(Any, self.table).__table__.columns
        return tuple(_array_type(found[name].type) for name in self.columns)

    @cached_property
    def key_type(self) -> str:
        return self.types[self.columns.index(self.key)]
