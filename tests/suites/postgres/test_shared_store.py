"""What only a shared engine can do wrong: connections that end, answers that get lost, several processes at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from deedbox import Unit
from deedbox.cli.books import copy_ledger
from deedbox.clock import Ids, SystemClock
from deedbox.ledger.chain import Ledger
from deedbox.ledger.records import SqliteFile
from deedbox.ledger.verify import verify
from deedbox.refusals import Unavailable
from deedbox.storage.connection import Broken
from deedbox.storage.database import Database, connect
from deedbox.storage.migrate import KERNEL, upgrade
from tests import postgres

WRITE = "insert into govern_quota (key, used_until) values (:key, 1)"


@pytest.fixture
def shared_url() -> Iterator[str]:
    with postgres.scratch(os.environ[postgres.VARIABLE]) as url:
        upgrade(url, {"kernel": KERNEL})
        yield url


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = await asyncio.to_thread(Database, url)
    try:
        yield database
    finally:
        await asyncio.to_thread(database.close)


@pytest.fixture
async def database(shared_url: str) -> AsyncIterator[Database]:
    async with opened(shared_url) as database:
        yield database


def write(unit: Unit, key: str) -> None:
    unit.change(WRITE, key=key)


async def keys(database: Database) -> list[str]:
    found = await database.read(lambda reader: reader.all("select key from govern_quota order by key"))
    return [row.key for row in found]


def end_connection(url: str, process: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s)", (process,))


def process_of(unit: Unit) -> int:
    return int(unit.all("select pg_backend_pid() as pid")[0].pid)


async def test_a_connection_that_ended_between_groups_is_opened_again(database: Database) -> None:
    process = await database.run(process_of)
    await asyncio.to_thread(end_connection, database.url, process)
    await database.run(write, "a")
    assert await keys(database) == ["a"]
    assert await database.run(process_of) != process


async def test_a_look_survives_the_end_of_its_connection(database: Database) -> None:
    process = await database.read(lambda reader: reader.all("select pg_backend_pid() as pid")[0].pid)
    await asyncio.to_thread(end_connection, database.url, process)
    assert await keys(database) == []


async def test_a_group_whose_connection_ends_is_run_again(database: Database) -> None:
    runs = []

    def cut_off(unit: Unit) -> None:
        runs.append(1)
        write(unit, "cut off")
        if len(runs) == 1:
            end_connection(database.url, process_of(unit))
        write(unit, "whole")

    await asyncio.gather(database.run(cut_off), database.run(write, "beside"))
    assert await keys(database) == ["beside", "cut off", "whole"]
    assert len(runs) == 2


class Proxy:
    """Passes bytes between a node and its server; hangs up at the next commit, before it or after it was done."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self._writers: list[asyncio.StreamWriter] = []
        self.cut = ""
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://{self._server.username}@127.0.0.1:{self.port}{self._server.path}"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        async with await asyncio.start_server(self._pass_on, "127.0.0.1", self.port) as server:
            self.port = server.sockets[0].getsockname()[1]
            try:
                yield
            finally:
                server.close()
                self.hang_up()
                await asyncio.sleep(0.1)  # both sides hear of it

    def hang_up(self) -> None:
        for each in self._writers:
            each.close()
        self._writers.clear()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection(self._server.hostname, self._server.port)
        self._writers += (writer, onward)
        with suppress(OSError):
            await asyncio.gather(self._copy(reader, onward, asking=True), self._copy(there, writer, asking=False))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asking: bool) -> None:
        while told := await reader.read(65_536):
            if asking and self.cut and b"commit" in told:
                cut, self.cut = self.cut, ""
                if cut == "after":
                    self._writers[-2].close()  # the answer reaches nobody
                    writer.write(told)
                    await asyncio.sleep(0.3)
                self.hang_up()
                return
            writer.write(told)
        writer.close()


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_commit_that_is_not_answered_is_neither_lost_nor_done_twice(shared_url: str, cut: str) -> None:
    proxy = Proxy(shared_url)
    runs = []

    def counts(unit: Unit) -> None:
        runs.append(1)
        write(unit, f"run {len(runs)}")

    async with proxy.listening(), opened(proxy.url) as database:
        proxy.cut = cut
        await database.run(counts)
        assert proxy.cut == ""
        assert await keys(database) == [f"run {len(runs)}"]
        assert len(runs) == (1 if cut == "after" else 2)


@pytest.mark.case("fed:C7")
async def test_a_server_that_is_gone_is_a_503_until_it_is_back(shared_url: str) -> None:
    proxy = Proxy(shared_url)
    async with AsyncExitStack() as stack:
        async with proxy.listening():
            database = await stack.enter_async_context(opened(proxy.url))
            await database.run(write, "before")
        with pytest.raises(Unavailable) as down:
            await database.run(write, "meanwhile")
        assert (down.value.code, down.value.status) == ("store_unavailable", 503)
        await stack.enter_async_context(proxy.listening())
        await database.run(write, "after")
        assert await keys(database) == ["after", "before"]


def test_the_commit_of_a_failed_transaction_says_so(shared_url: str) -> None:
    connection = connect(shared_url, writing=True)
    connection.begin()
    with suppress(psycopg.Error):
        connection.script("select nothing from nowhere")
    assert not connection.in_step
    with pytest.raises(Broken):
        connection.commit()
    connection.close()


@pytest.mark.case("fed:D1", "fed:D2", "fed:C3")
async def test_processes_that_append_at_once_keep_one_chain(shared_url: str, tmp_path: Path) -> None:
    ledger = Ledger("alpha.test", Ids(SystemClock()))

    def append(unit: Unit, number: int) -> int:
        return ledger.entry(unit, "noted", "somebody", {"n": number}).seq or 0

    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(opened(shared_url)) for _ in range(4)]
        numbers = await asyncio.gather(*(databases[n % 4].run(append, n) for n in range(400)))
    assert sorted(numbers) == list(range(1, 401))
    await asyncio.to_thread(copy_ledger, shared_url, tmp_path / "ledger.db")
    verdict = await asyncio.to_thread(verify, SqliteFile(tmp_path / "ledger.db"))
    assert (verdict.first_bad, verdict.size, verdict.counts.payloads) == (None, 400, 400)
