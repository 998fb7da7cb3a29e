"""The ledger as the offline verifier reads it: a database file, an export, or a node's own by its settings."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deedbox.ledger.checkpoint import VerifierKey
from deedbox.ledger.records import ExportFile, Source, SqliteFile
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.settings import Settings
    from deedbox.storage.database import Reader

SQLITE = b"SQLite format 3\x00"
ROWS_AT_ONCE = 1024


@contextmanager
def book(path: str, *, payloads: bool = True) -> Iterator[Source]:
    """The ledger in a file: a node's SQLite database or an export; ``-`` is an export on standard input."""
    if path == "-":
        yield ExportFile(sys.stdin.buffer)
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # closed below, once we know which of two readers takes it
    except OSError as error:
        raise Refusal("unreadable_ledger", 404, f"{path}: {error.strerror}") from None
    with file:
        if file.read(len(SQLITE)) == SQLITE:
            yield SqliteFile(Path(path), payloads=payloads)
        else:
            file.seek(0)
            yield ExportFile(file)


@contextmanager
def own_book(settings: Settings, *, payloads: bool = True) -> Iterator[Source]:
    """A node's own ledger, beside the running node or without it; one on PostgreSQL is first copied into a file."""
    from deedbox.storage.database import sqlite_path
    from deedbox.storage.migrate import no_database

    path = sqlite_path(settings.node.database)
    if path is None:
        with tempfile.TemporaryDirectory(prefix="deedbox-ledger-") as folder:
            copy = Path(folder) / "ledger.db"
            copy_ledger(settings.node.database, copy)
            yield SqliteFile(copy, payloads=payloads)
    elif path.exists():
        yield SqliteFile(path, payloads=payloads)
    else:
        raise no_database(path)


def own_keys(settings: Settings) -> tuple[VerifierKey, ...]:
    """The ledger keys this node has had, as its database lists them."""
    from deedbox.canonical import admit
    from deedbox.identity.keys import Ed25519Public

    with reading(settings) as reader:
        rows = reader.all("select jwk from identity_key where agent = 'ledger' order by not_before")
    return tuple(
        VerifierKey(settings.node.domain, Ed25519Public.from_jwk(admit(row.jwk.encode())).point) for row in rows
    )


@contextmanager
def reading(settings: Settings) -> Iterator[Reader]:
    """A read connection to a node's database, beside the running node or without it."""
    from deedbox.storage.database import Reader, connect, sqlite_path
    from deedbox.storage.migrate import no_database

    path = sqlite_path(settings.node.database)
    if path is not None and not path.exists():
        raise no_database(path)
    connection = connect(settings.node.database, writing=False)
    try:
        yield Reader(connection)
    finally:
        connection.close()


def copy_ledger(url: str, target: Path) -> None:
    """Copy a ledger's tables into a new SQLite file, page by page, as one moment saw them."""
    from deedbox.ledger.entry import BATCHES, ENTRIES, EVENTS, PAYLOADS
    from deedbox.storage.database import connect
    from deedbox.storage.migrate import KERNEL, upgrade

    copy_url = f"sqlite:///{target}"
    upgrade(copy_url, {"kernel": KERNEL})
    source, copy = connect(url, writing=False), connect(copy_url, writing=True)
    try:
        copy.begin()
        copied = (PAYLOADS, EVENTS, BATCHES, ENTRIES)
        ends = _ends(source, copied)
        for rows in copied:
            for page in _pages(source, rows, ends[rows.name]):
                copy.insert(rows, page)
        size = ends[ENTRIES.name]
        for note in source.rows("select size, note from ledger_checkpoint where size <= :size", {"size": size}):
            copy.execute("insert into ledger_checkpoint (size, note) values (:size, :note)", note._asdict())
        copy.commit()
    finally:
        copy.close()
        source.close()


def _ends(source: Any, copied: Iterable[Any]) -> dict[str, int]:
    """The last key of each table by its name, as one statement sees them; what is before stays as it is."""
    asked = ", ".join(f"(select max({rows.key}) from {rows.name}) as {rows.name}" for rows in copied)  # noqa: S608
    (found,) = source.rows(f"select {asked}", {})  # our own names
    return {name: last or 0 for name, last in found._asdict().items()}


def _pages(source: Any, rows: Any, last: int) -> Iterator[list[tuple[Any, ...]]]:
    asked = (
        f"select {', '.join(rows.columns)} from {rows.name} where {rows.key} > :after and {rows.key} <= :last"  # noqa: S608
        f" order by {rows.key} limit {ROWS_AT_ONCE}"
    )
    after = 0
    while page := source.rows(asked, {"after": after, "last": last}):
        yield [tuple(row) for row in page]
        after = page[-1][rows.columns.index(rows.key)]
