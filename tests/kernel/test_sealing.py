"""Sealing: events into batches by count or age, heads signed when they grew, and a proof for each event afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox import Node, Unit
from deedbox.app import running
from deedbox.kernel import open_kernel
from deedbox.ledger.checkpoint import SignedCheckpoint, VerifierKey
from deedbox.ledger.merkle import root
from deedbox.ledger.sealing import BATCH_AGE, BATCH_COUNT, keep_sealed, seal, sign_head
from deedbox.ledger.tree import tree
from deedbox.node import assemble
from deedbox.testing import FrozenClock
from tests.kernel.bare_node import a_bare_node
from tests.kernel.road_scene import rows_of, written


@pytest.fixture
async def node(tmp_path: Path, database_url: str, clock: FrozenClock) -> AsyncIterator[Node]:
    async with a_bare_node(tmp_path, database=database_url, clock=clock) as made:
        yield made


async def tell(node: Node, count: int) -> None:
    def events(unit: Unit) -> None:
        for number in range(count):
            node.ledger.event(unit, {"n": number, "ended": "executed"})

    await node.database.run(events)


async def batches(node: Node) -> list[tuple[int, int, int]]:
    return [tuple(row) for row in await rows_of(node, "ledger_batch order by first")]


async def test_events_wait_until_they_are_many_or_old(node: Node, clock: FrozenClock) -> None:
    assert await node.database.run(seal, node) is False
    await tell(node, 3)
    assert await node.database.run(seal, node) is False
    assert await batches(node) == []
    clock.advance(BATCH_AGE / 1000)
    await node.database.run(seal, node)
    assert await batches(node) == [(1, 3, 1)]
    await node.database.run(seal, node)
    assert await batches(node) == [(1, 3, 1)]


async def test_a_full_batch_does_not_wait(node: Node) -> None:
    await tell(node, BATCH_COUNT + 5)
    assert await node.database.run(seal, node) is True
    assert await node.database.run(seal, node) is False
    assert await batches(node) == [(1, BATCH_COUNT, 1)]


async def test_one_turn_seals_all_that_is_due_and_signs_once(node: Node, clock: FrozenClock) -> None:
    await tell(node, 2 * BATCH_COUNT + 1)
    clock.advance(10)
    await keep_sealed(node)
    sizes = [(last - first + 1, seq) for first, last, seq in await batches(node)]
    assert sizes == [(BATCH_COUNT, 1), (BATCH_COUNT, 2), (1, 3)]
    assert [row.size for row in await rows_of(node, "ledger_checkpoint")] == [3]


async def test_a_batch_says_what_it_seals(node: Node, clock: FrozenClock) -> None:
    await tell(node, 3)
    clock.advance(5)
    node.refusal_events._dropped = {"unauthorized": 4}
    await node.database.run(seal, node)
    entry = (await written(node))[0]
    leaves = [bytes(row.leaf) for row in await rows_of(node, "ledger_event order by id")]
    assert entry.kind == "batch"
    assert entry.said == {
        **{"first": 1, "last": 3, "count": 3, "root": root(leaves).hex(), "dropped": {"unauthorized": 4}},
        **{"from": "2026-01-02T03:04:05.000Z", "to": "2026-01-02T03:04:05.000Z", "schema": "deedbox-event/1"},
    }
    assert node.refusal_events.take_counts() == {}


async def test_sealers_that_meet_seal_everything_once(node: Node, clock: FrozenClock) -> None:
    await tell(node, 10)
    clock.advance(5)
    await asyncio.gather(*(keep_sealed(node) for _ in range(5)))
    assert await batches(node) == [(1, 10, 1)]
    assert len(await rows_of(node, "ledger_checkpoint")) == 1


async def test_a_head_is_signed_when_the_ledger_grew(node: Node) -> None:
    assert await node.database.run(sign_head, node) is None
    await tell(node, 1)
    assert await node.database.run(sign_head, node) is None  # an event is no entry
    await node.database.run(seal, node, True)
    note = await node.database.run(sign_head, node)
    assert note is not None
    assert await node.database.run(sign_head, node) is None
    signed = SignedCheckpoint.parse(note)
    key = VerifierKey(node.domain, node.kernel.agents.ledger.public.point)
    assert signed.signers((key,))
    assert (signed.checkpoint.origin, signed.checkpoint.size) == (node.domain, 1)
    assert signed.checkpoint.root == await node.database.run(lambda unit: tree(unit, 1).root())


async def test_a_stop_seals_what_is_left(tmp_path: Path, database_url: str, clock: FrozenClock) -> None:
    async with a_bare_node(tmp_path, database=database_url, clock=clock) as node:
        async with running(node):
            await tell(node, 2)
        assert [(first, last) for first, last, _ in await batches(node)] == [(1, 2)]


async def test_events_of_a_process_that_was_killed_are_sealed_by_the_next(
    tmp_path: Path, database_url: str, clock: FrozenClock
) -> None:
    async with a_bare_node(tmp_path, database=database_url, clock=clock) as node:
        settings = node.kernel.settings
    kernel = await open_kernel(settings, clock=clock)
    await tell(assemble(kernel, []), 2)
    await kernel.close()  # without a last turn of the sealer, as after SIGKILL
    clock.advance(60)
    kernel = await open_kernel(settings, clock=clock)
    again: Any = assemble(kernel, [])
    await keep_sealed(again)
    assert [(first, last) for first, last, _ in await batches(again)] == [(1, 2)]
    assert orjson.loads(bytes((await rows_of(again, "ledger_payload"))[0].payload))["count"] == 2
    await kernel.close()
