"""The tools plugin authors test with: nodes that really serve, time that stands, ledgers that are really verified."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deedbox.storage.unit import Unit
from deedbox.testing import FrozenClock, RunningNode, a_node, verify_ledger


def append(unit: Unit, running: RunningNode) -> int | None:
    return running.kernel.ledger.entry(unit, "noted", "somebody", {"n": 1}).seq


async def test_two_nodes_serve_on_https_and_resolve_each_other(two_nodes: Callable[..., Any]) -> None:
    alpha, beta = await two_nodes(clock=FrozenClock())
    assert (await alpha.get("/health")).json()["domain"] == "alpha.test"
    assert (await beta.get("/health")).json()["domain"] == "beta.test"
    found = await alpha.kernel.outgoing.get_json("beta.test", "/health")
    assert b"beta.test" in found.body
    assert alpha.base_url == f"https://alpha.test:{alpha.port}"


async def test_a_node_without_development_speaks_plain_http(tmp_path: Path) -> None:
    async with a_node(tmp_path, "alpha.example", facets={}) as running:
        assert running.base_url.startswith("http://127.0.0.1:")
        assert (await running.get("/health", x_request_id="r-1")).headers["x-request-id"] == "r-1"
        assert (await running.request("HEAD", "/nowhere")).body == b""


async def test_the_same_folder_is_the_same_node(tmp_path: Path) -> None:
    async with a_node(tmp_path) as running:
        first, keys = await running.kernel.database.run(append, running), running.kernel.agents.ledger.public
    async with a_node(tmp_path) as again:
        assert await again.kernel.database.run(append, again) == (first or 0) + 1
        assert again.kernel.agents.ledger.public == keys


async def test_time_stands_until_it_is_moved(a_node: Callable[..., Any]) -> None:
    clock = FrozenClock("2026-01-02T03:04:05.000Z")
    running = await a_node(clock=clock)
    before = await running.kernel.database.run(lambda unit: unit.now)
    clock.advance(61.5)
    assert await running.kernel.database.run(lambda unit: unit.now) == before + 61_500


async def test_a_tampered_ledger_fails_the_scenario(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_node(tmp_path) as running:
            await running.kernel.database.run(append, running)
            await asyncio.to_thread(tamper, tmp_path / "deedbox.db")

    with pytest.raises(AssertionError, match=r"alpha\.test"):
        await scenario()


def tamper(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("update ledger_payload set payload = '{}' where seq = 1")
    database.close()


async def test_verifying_counts_the_entries(tmp_path: Path) -> None:
    async with a_node(tmp_path) as running:
        for _ in range(3):
            await running.kernel.database.run(append, running)
    assert verify_ledger(running.kernel) == 3
