"""The guard of `tests/loopback.py` holds: no test reaches another machine, and none can hide that it tried."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from tests import loopback

ELSEWHERE = "192.0.2.1"  # TEST-NET-1, RFC 5737


def connect() -> None:
    socket.create_connection((ELSEWHERE, 9), timeout=1).close()


def send() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"?", (ELSEWHERE, 9))


def resolve() -> None:
    socket.getaddrinfo("node.example", 443)


def connect_asyncio() -> None:
    asyncio.run(open_and_close())


def connect_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(open_and_close())


async def open_and_close() -> None:
    async with asyncio.timeout(1):
        _, writer = await asyncio.open_connection(ELSEWHERE, 9)
    writer.close()


@pytest.mark.parametrize("leave", [connect, send, resolve, connect_asyncio, connect_uvloop])
def test_leaving_this_machine_is_refused_and_remembered(leave: Callable[[], None]) -> None:
    with pytest.raises(ConnectionRefusedError, match="tests stay on loopback"):
        leave()
    assert len(loopback.escapes) == 1
    loopback.escapes.clear()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "", None, b"::1"])
def test_loopback_is_here(host: object) -> None:
    assert loopback.is_here(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::ffff:10.0.0.1", "node.example", "fe80::1%lo", "127.1.evil"])
def test_everything_else_is_elsewhere(host: object) -> None:
    assert not loopback.is_here(host)
