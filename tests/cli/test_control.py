"""The owner's socket: who is believed, what is answered, and that nothing sent to it stops it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from deedbox import control
from deedbox.testing import RunningNode, a_node

FACETS: dict[str, dict[str, Any]] = {"wellknown": {}, "inbox": {}, "capabilities": {}, "basics": {}}
Call = Callable[..., Any]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with a_node(tmp_path / "alpha.test", facets=FACETS) as running, control.listening(running.node):
        yield running


def path_of(running: RunningNode) -> Path:
    return control.socket_path(running.kernel.settings)


async def call(running: RunningNode, object_key: str, arguments: dict[str, Any]) -> Any:
    return await asyncio.to_thread(control.call, path_of(running), object_key, arguments)


async def line(running: RunningNode, sent: bytes) -> Any:
    reader, writer = await asyncio.open_unix_connection(str(path_of(running)))
    writer.write(sent)
    await writer.drain()
    writer.write_eof()
    try:
        return json.loads(await reader.readline() or b"null")
    finally:
        writer.close()
        await writer.wait_closed()


async def test_the_owner_is_answered_with_a_receipt(node: RunningNode) -> None:
    told = await call(node, "UPPER", {"text": "deed"})
    assert told["ok"] is True
    assert told["value"] == "DEED"
    assert len(told["receipt"]["hash"]) == 64
    assert stat.S_IMODE(path_of(node).stat().st_mode) == 0o600


async def test_a_no_comes_with_its_code(node: RunningNode) -> None:
    told = await call(node, "CAPABILITY_REVOKE", {"fingerprint": "cap_0000000000000000"})
    assert (told["ok"], told["error"], told["status"]) == (False, "unknown_capability", 404)
    told = await call(node, "UPER", {})
    assert told["error"] == "unknown_object"
    assert told["extra"]["did_you_mean"] == ["UPPER"]
    told = await call(node, "UPPER", {"text": "x", "extra": 1})
    assert told["error"] == "bad_arguments"


async def test_another_user_is_not_the_owner(node: RunningNode) -> None:
    stranger = os.geteuid() + 4321
    told = await control.perform(node.node, "UPPER", {"text": "deed"}, stranger)
    assert (told["ok"], told["error"], told["status"]) == (False, "unauthorized", 401)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{\n",
        b'{"object":1}\n',
        b'{"object":"UPPER","object":"NOW"}\n',
        b"\xff\n",
        b'{"arguments":{}}\n',
    ],
)
async def test_what_is_no_question_is_refused_and_the_next_is_answered(node: RunningNode, sent: bytes) -> None:
    told = await line(node, sent)
    assert told["ok"] is False
    assert (await call(node, "UPPER", {"text": "still"}))["value"] == "STILL"


async def test_a_line_without_an_end_stops_nothing(node: RunningNode) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path_of(node)))
    writer.write(b"x" * (2 * control.MAX_LINE))
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    assert (await call(node, "UPPER", {"text": "still"}))["value"] == "STILL"


async def test_many_commands_at_once(node: RunningNode) -> None:
    told = await asyncio.gather(*(call(node, "UPPER", {"text": f"n{number}"}) for number in range(12)))
    assert [each["value"] for each in told] == [f"N{number}" for number in range(12)]


async def test_nobody_listens_where_no_node_is(tmp_path: Path) -> None:
    assert control.call(tmp_path / "control.sock", "UPPER", {}) is None
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "control.sock"))
    left.close()
    assert control.call(tmp_path / "control.sock", "UPPER", {}) is None


async def test_a_socket_left_behind_is_replaced_and_removed(tmp_path: Path) -> None:
    async with a_node(tmp_path, facets=FACETS) as running:
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path_of(running)))
        left.close()
        async with control.listening(running.node):
            assert (await call(running, "UPPER", {"text": "deed"}))["value"] == "DEED"
        assert not path_of(running).exists()


async def test_the_folder_may_have_a_name_too_long_for_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / ("longer" * 10)
    async with a_node(folder, facets=FACETS) as running, control.listening(running.node):
        assert len(str(path_of(running))) > 108
        assert (await call(running, "UPPER", {"text": "deed"}))["value"] == "DEED"


async def test_of_two_processes_one_answers_and_then_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "TAKEN_OVER_WITHIN", 0.01)
    monkeypatch.setattr(control, "socket_path", lambda settings: tmp_path / control.NAME)
    asked: tuple[str, dict[str, Any]] = ("CAPABILITY_REVOKE", {"fingerprint": "cap_0000000000000000"})
    async with (
        a_node(tmp_path / "one", facets=FACETS) as one,
        a_node(tmp_path / "other", facets={"basics": {}}) as other,
        AsyncExitStack() as first,
    ):
        await first.enter_async_context(control.listening(one.node))
        async with control.listening(other.node):
            told = await call(one, *asked)
            assert told["error"] == "unknown_capability"
            await first.aclose()
            told = None
            while told is None:
                await asyncio.sleep(0.01)
                told = await call(other, *asked)
            assert told["error"] == "unknown_object"
    assert not (tmp_path / control.NAME).exists()
