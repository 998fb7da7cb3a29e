"""What somebody nobody knows may cost a node: bytes, seconds, and lines in the ledger that stay for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deedbox import serve
from deedbox.logs import GONE, redacted_text
from deedbox.testing import RunningNode, a_node

BEGIN, END = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with a_node(tmp_path, facets={"basics": {}, "capabilities": {}, "dispatch": {}}) as running:
        yield running


@pytest.mark.parametrize("text", [BEGIN * 40_000, f"{BEGIN}{'-----END ' * 110_000}", "sh.123456789." * 70_000])
def test_taking_secrets_out_of_a_text_takes_time_in_proportion(text: str) -> None:
    began = time.process_time()
    redacted_text(text)
    assert time.process_time() - began < 2  # a second look from every beginning took minutes


def test_a_key_that_was_cut_off_is_a_secret_too() -> None:
    assert redacted_text(f"a {BEGIN}MIG{END} b {BEGIN}MIG") == f"a {GONE} b {GONE}"


async def test_a_name_nothing_has_is_written_down_only_so_far(node: RunningNode) -> None:
    answer = await node.post("/api/dispatch", {"key": "K" * 100_000})
    assert answer.status == 404
    rows = await node.kernel.database.read(lambda reader: reader.all("select event from ledger_event"))
    assert [len(bytes(row.event)) < 1_000 for row in rows] == [True]


async def test_a_head_without_end_is_cut_off(node: RunningNode) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(b"GET /health/live HTTP/1.1\r\n")

    async def more() -> None:
        for number in range(200):
            writer.write(b"x%d: " % number + b"y" * 65_536 + b"\r\n")
            await writer.drain()

    with pytest.raises(ConnectionError):
        await more()
    writer.close()
    assert (await node.get("/health/live")).status == 200


async def test_a_head_too_large_or_of_too_many_lines_is_refused(node: RunningNode) -> None:
    large = "y" * serve.HEAD_BYTES
    assert (await node.raw(f"GET /health/live HTTP/1.1\r\nx: {large}".encode())).status == 431
    many = "".join(f"x{number}: y\r\n" for number in range(serve.HEADERS + 1))
    assert (await node.raw(f"GET /health/live HTTP/1.1\r\n{many}\r\n".encode())).status == 400


async def test_a_head_that_does_not_come_is_not_waited_for(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "IDLE", 0.2)
    whole = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"
    for first in (b"", b"GET /health/live HTTP/1.1\r\nx: ", whole + b"GET /heal"):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(first)
        if first.startswith(whole):  # a second head, on a connection that was good once
            await reader.readuntil(b'"ok": true\n}')
            writer.write(b"th/live")
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_bodies_and_requests_in_a_row_are_no_part_of_a_head(node: RunningNode) -> None:
    body = b'{"key":"NOW","body":"' + b"x" * 100_000 + b'"}'
    post = b"POST /api/dispatch HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    for _ in range(5):
        writer.write(post + post[:30])
        writer.write(post[30:])
    async with asyncio.timeout(10):
        for _ in range(10):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 401")
            (length,) = [line for line in head.split(b"\r\n") if line.startswith(b"content-length")]
            await reader.readexactly(int(length.partition(b":")[2]))
    writer.close()
