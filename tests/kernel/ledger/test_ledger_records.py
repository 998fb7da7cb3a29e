"""Exports and databases as they are read: in order, whole, and never with an exception that escapes."""

from __future__ import annotations

import sqlite3
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbox.ledger.checkpoint import SignedCheckpoint
from deedbox.ledger.records import Entries, ExportFile, Note, SqliteFile
from deedbox.ledger.verify import State, Trust, verify
from deedbox.refusals import Refusal
from tests.kernel.ledger.paper import Paper


@pytest.fixture
def export(path: Path) -> bytes:
    return Paper().fill(3).export(path)


@given(st.binary(max_size=300), st.integers(0))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_export_makes_it_raise(export: bytes, noise: bytes, at: int) -> None:
    at %= len(export)
    for raw in (noise, export[:at] + noise + export[at:], export[:at] + noise):
        try:
            source = ExportFile(BytesIO(raw))
        except Refusal:
            continue
        assert verify(source).state in State


LINES = [
    b"[]",
    b"7",
    b"{}",
    b'{"entry":7}',
    b'{"entry":null}',
    b'{"entry":"\\ud800"}',
    b'{"entry":"","salt":"x"}',
    b'{"entry":"","salt":7}',
    b'{"entry":"","payload":{}}',
    b'{"event":"{}","salt":null}',
    b'{"event":"{}","id":true}',
    b'{"checkpoint":null}',
    b"[" * 100_000,
    b"\xff",
    b'"' + b"x" * (16 * 1024 * 1024) + b'"',
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_line_that_is_no_record(path: Path, line: bytes) -> None:
    verdict = verify(ExportFile(BytesIO(Paper().fill(2).export(path) + line + b"\n")))
    assert verdict.state is State.BROKEN
    assert "line 4 of the export" in verdict.reason


@pytest.mark.parametrize("head", [b"", b"{}", b'{"deedbox-ledger-export":2}', b'{"deedbox-ledger-export":1,"keys":7}'])
def test_what_is_no_export(head: bytes) -> None:
    with pytest.raises(Refusal, match="unreadable_ledger"):
        ExportFile(BytesIO(head + b"\n"))


def test_what_is_no_database(path: Path) -> None:
    assert verify(SqliteFile(path)).state is State.BROKEN
    assert not path.exists()
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    assert verify(SqliteFile(path)).state is State.BROKEN


def test_a_database_with_odd_types_and_missing_tables(paper: Paper, path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table ledger_entry (seq integer primary key, header, leaf)")
        rows = [(number, entry.header.decode(), entry.leaf) for number, entry in enumerate(paper.entries, 1)]
        connection.executemany("insert into ledger_entry values (?, ?, ?)", rows)
        connection.commit()
        assert verify(SqliteFile(path), Trust(heads=(paper.head(),))).state is State.WITNESSED
        for value in (None, 7, 1.5):
            connection.execute("update ledger_entry set header = ? where seq = 100", (value,))
            connection.commit()
            assert verify(SqliteFile(path)).first_bad == 100
    connection.close()


def test_an_export_with_a_checkpoint_out_of_its_place(paper: Paper, path: Path) -> None:
    lines = paper.export(path).splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith(b'{"checkpoint"'))
    for place in (at - 1, at + 1, 1):
        moved = [*lines[:at], *lines[at + 1 :]]
        moved.insert(place, lines[at])
        assert verify(ExportFile(BytesIO(b"".join(moved)))).state is State.BROKEN


def test_records_stand_in_ledger_order(paper: Paper, path: Path) -> None:
    seen = 0
    sizes: list[tuple[int, int]] = []
    for record in paper.database(path).records():
        if isinstance(record, Entries):
            assert 1 <= len(record.rows) <= 256
            seen += len(record.rows)
        elif isinstance(record, Note):
            sizes.append((SignedCheckpoint.parse(record.text).checkpoint.size, seen))
    assert sizes == [(100, 100), (256, 256), (300, 300)]
