"""What goes into an array comes out of it: the parameters in which many rows are sent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from deedbox.storage.arrays import array_of
from tests import postgres

texts = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"))
KINDS = {
    "text": texts,
    "bytea": some.binary(max_size=40),
    "bigint": some.integers(-(2**63), 2**63 - 1),
    "boolean": some.booleans(),
    "double precision": some.floats(allow_nan=False),
}
columns = some.one_of(
    *(some.tuples(some.just(kind), some.lists(some.none() | each, max_size=8)) for kind, each in KINDS.items())
)


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(os.environ[postgres.VARIABLE], autocommit=True, prepare_threshold=1) as opened:
        yield opened


@given(columns)
@example(("text", ["", "NULL", "null", "{}", "a,b", '"', "\\", '\\"', " x ", "\t\n", "é", "{{", None]))
@example(("bytea", [b"", b"\0\\\"'", bytes(range(256)), None]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
def test_an_array_comes_back_as_it_went(connection: psycopg.Connection[Any], column: tuple[str, list[Any]]) -> None:
    kind, values = column
    found = connection.execute(f"select %s::{kind}[]".encode(), (array_of(kind, values),)).fetchone()
    assert found == (values,)


@pytest.mark.parametrize("unsayable", ["a\0b", "\ud800"])
def test_what_the_engine_has_no_text_for_is_an_error(connection: psycopg.Connection[Any], unsayable: str) -> None:
    with pytest.raises((psycopg.DataError, UnicodeEncodeError)):
        connection.execute("select %s::text[]", (array_of("text", [unsayable]),))
