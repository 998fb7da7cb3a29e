"""Appending: one chain whoever appends, numbers without gaps, and nothing left of what was undone (kernel-notes §5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbox import Node, Unit
from deedbox.clock import Ids
from deedbox.ledger.chain import Ledger
from deedbox.ledger.leaf import (
    NO_ENTRY,
    commit_actor,
    commit_payload,
    commit_subject,
    event_leaf,
    parse_header,
)
from deedbox.ledger.merkle import leaf_hash
from deedbox.ledger.merkle import root as root_of
from deedbox.ledger.sealing import sign_head
from deedbox.ledger.tree import tree
from deedbox.storage.database import Database
from deedbox.storage.migrate import KERNEL, upgrade
from deedbox.testing import FrozenClock, verify_ledger
from tests.kernel.bare_node import a_bare_node
from tests.kernel.road_scene import rows_of


@pytest.fixture
async def node(tmp_path: Path, database_url: str) -> AsyncIterator[Node]:
    async with a_bare_node(tmp_path, database=database_url, clock=FrozenClock()) as made:
        yield made


def append(unit: Unit, node: Node, number: int, invocation: str | None = None) -> int:
    seq = node.ledger.entry(unit, "noted", "somebody", {"n": number}, invocation=invocation).seq
    assert seq is not None
    return seq


def tell(unit: Unit, node: Node, number: int) -> int:
    told = node.ledger.event(unit, {"n": number}).event
    assert told is not None
    return told


async def test_an_entry_commits_to_who_what_and_about_whom(node: Node) -> None:
    await node.database.run(append, node, 1)
    receipt = await node.database.run(
        lambda unit: node.ledger.entry(
            unit, "minted", "owner", {"text": "ünïcode"}, subject="cap_1", refs=("entry:1",), invocation="inv_1"
        )
    )
    first, second = await rows_of(node, "ledger_entry")
    _, opened = await rows_of(node, "ledger_payload")
    header, salt, payload = parse_header(bytes(second.header)), bytes(opened.salt), bytes(opened.payload)
    assert (header.seq, header.kind, header.refs, header.ts) == (2, "minted", ("entry:1",), "2026-01-02T03:04:05.000Z")
    assert parse_header(bytes(first.header)).prev == NO_ENTRY
    assert header.prev == bytes(first.leaf) == leaf_hash(bytes(first.header))
    assert orjson.loads(payload) == {"text": "ünïcode"}
    assert (header.actor, header.subject) == (commit_actor(salt, "owner"), commit_subject(salt, "cap_1"))
    assert header.payload == commit_payload(salt, payload)
    assert bytes(second.leaf) == receipt.leaf == leaf_hash(bytes(second.header))
    (found,) = await rows_of(node, "ledger_invocation")
    assert (found.id, found.seq, found.event, receipt.id) == ("inv_1", 2, None, "inv_1")


async def test_an_event_is_committed_to_at_once(node: Node) -> None:
    receipt = await node.database.run(lambda unit: node.ledger.event(unit, {"shown": 1}, invocation="inv_2"))
    (row,) = await rows_of(node, "ledger_event")
    assert bytes(row.leaf) == receipt.leaf == event_leaf(bytes(row.salt), bytes(row.event))
    (found,) = await rows_of(node, "ledger_invocation")
    assert (found.id, found.seq, found.event) == ("inv_2", None, 1)


async def test_two_entries_that_say_the_same_have_nothing_in_common(node: Node) -> None:
    await asyncio.gather(node.database.run(append, node, 1), node.database.run(append, node, 1))
    one, other = [parse_header(bytes(row.header)) for row in await rows_of(node, "ledger_entry")]
    assert (one.payload != other.payload, one.actor != other.actor) == (True, True)


@pytest.mark.case("fed:D1")
async def test_whoever_appends_appends_to_one_chain(node: Node) -> None:
    many = [node.database.run(append, node, number) for number in range(300)]
    events = [node.database.run(tell, node, number) for number in range(300)]
    numbers, told = await asyncio.gather(asyncio.gather(*many), asyncio.gather(*events))
    assert (sorted(numbers), sorted(told)) == (list(range(1, 301)), list(range(1, 301)))
    prev = NO_ENTRY
    for row in await rows_of(node, "ledger_entry order by seq"):
        header = parse_header(bytes(row.header))
        assert (header.seq, header.prev) == (row.seq, prev)
        prev = bytes(row.leaf)


async def test_a_second_entry_under_one_number_is_impossible(node: Node) -> None:
    await node.database.run(append, node, 1)
    insert = "insert into ledger_entry (seq, header, leaf) values (1, :header, :leaf)"
    with pytest.raises(Exception, match=r"(?i)unique"):
        await node.database.run(lambda unit: unit.change(insert, header=b"other", leaf=b"other"))


@pytest.mark.case("fed:D7")
async def test_what_is_undone_leaves_no_gap_and_no_link(node: Node) -> None:
    def fails(unit: Unit) -> None:
        append(unit, node, 2)
        tell(unit, node, 2)
        raise ValueError("a bug")

    def half(unit: Unit) -> None:
        append(unit, node, 3, invocation="inv_kept")
        with suppress(ValueError), unit.savepoint():
            append(unit, node, 4, invocation="inv_undone")
            tell(unit, node, 4)
            raise ValueError("a bug")
        tell(unit, node, 5)

    works = (lambda unit: append(unit, node, 1), fails, half, lambda unit: append(unit, node, 6))
    await asyncio.gather(*(node.database.run(work) for work in works), return_exceptions=True)
    payloads = [orjson.loads(bytes(row.payload))["n"] for row in await rows_of(node, "ledger_payload order by seq")]
    events = [orjson.loads(bytes(row.event))["n"] for row in await rows_of(node, "ledger_event order by id")]
    assert (payloads, events) == ([1, 3, 6], [5])
    assert [row.id for row in await rows_of(node, "ledger_invocation")] == ["inv_kept"]


async def test_a_receipt_names_the_newest_head_that_was_signed(node: Node) -> None:
    first = await node.database.run(lambda unit: node.ledger.entry(unit, "noted", "a", {}))
    note = await node.database.run(sign_head, node)
    second = await node.database.run(lambda unit: node.ledger.entry(unit, "noted", "a", {}))
    assert (first.checkpoint, second.checkpoint) == (None, note)


async def test_the_tree_over_stored_tiles_is_the_tree_over_all_leaves(node: Node) -> None:
    for start in range(0, 600, 150):
        await asyncio.gather(*(node.database.run(append, node, number) for number in range(start, start + 150)))
    assert [row.place for row in await rows_of(node, "ledger_tile order by place")] == [0, 1]

    leaves = [bytes(row.leaf) for row in await rows_of(node, "ledger_entry order by seq")]
    assert await node.database.run(lambda unit: tree(unit, 600).root()) == root_of(leaves)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["entry", "event", "fails", "savepoint"]), max_size=6), max_size=6))
def test_any_order_of_successes_and_failures_makes_a_whole_ledger(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[str]]
) -> None:
    """The head in memory and what is written never part, whatever is undone between."""
    folder = tmp_path_factory.mktemp("orders")
    asyncio.run(scenario(folder, groups))


async def scenario(folder: Path, groups: list[list[str]]) -> None:
    clock = FrozenClock()
    url = f"sqlite:///{folder / 'deedbox.db'}"
    async with a_bare_node(folder, database=url, clock=clock) as node:

        def work(unit: Unit, what: str) -> None:
            append(unit, node, 0)
            if what == "event":
                tell(unit, node, 0)
            if what == "savepoint":
                with suppress(ValueError), unit.savepoint():
                    append(unit, node, 1)
                    raise ValueError(what)
            if what == "fails":
                raise ValueError(what)

        for group in groups:
            await asyncio.gather(*(node.database.run(work, what) for what in group), return_exceptions=True)
        kept = sum(what != "fails" for group in groups for what in group)
    assert verify_ledger(node.kernel) >= kept


async def test_the_head_is_never_kept_from_one_group_to_the_next(database_url: str) -> None:
    """Another process may have appended meanwhile (decision 34); here another hand on the same file does."""
    await asyncio.to_thread(upgrade, database_url, {"kernel": KERNEL})
    ledger = Ledger("alpha.test", Ids(FrozenClock()))

    def add(unit: Unit) -> int | None:
        return ledger.entry(unit, "noted", "a", {}).seq

    numbers = []
    for _ in range(3):
        database = Database(database_url)
        numbers.append(await database.run(add))
        await asyncio.to_thread(database.close)
    assert numbers == [1, 2, 3]
