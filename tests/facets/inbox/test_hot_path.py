"""A message costs no statement of its own: a group's are as many for fifty messages as for one (decision 29)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox import Inbox as InboxPort
from deedbox import Reply
from deedbox.identity.keys import P256Pair
from tests.facets.inbox.scene import ALICE, MALLORY, Home, pair_of

_VALUES = re.compile(r"x?'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b", re.IGNORECASE)


@contextmanager
def statements(home: Home) -> Iterator[list[str]]:
    """What the writing connection is told to do, without the values; one statement run for many rows is one."""
    seen: list[str] = []
    raw: Any = home.running.kernel.database._writer._connection._raw  # type: ignore[attr-defined]  # SQLite's own

    def note(sql: str) -> None:
        bare = _VALUES.sub("?", sql)
        if not seen or seen[-1] != bare:
            seen.append(bare)

    raw.set_trace_callback(note)
    try:
        yield seen
    finally:
        raw.set_trace_callback(None)


async def in_one_group(home: Home, envelopes: list[dict[str, Any]]) -> list[Reply]:
    """Hand them to the port at once, so that they share a commit."""
    port = home.running.node.port(InboxPort)  # type: ignore[type-abstract]  # a protocol is the port's name
    given = (port.accept(orjson.dumps(each), carrier="https", address="here") for each in envelopes)
    replies = await asyncio.gather(*given)
    assert len({reply.group for reply in replies if reply.group}) <= 1
    return list(replies)


async def cost(home: Home, envelopes: list[dict[str, Any]], code: str | None = None) -> list[str]:
    """The statements of a group that takes these messages."""
    with statements(home) as seen:
        replies = await in_one_group(home, envelopes)
    assert {reply.outcome.code for reply in replies} == {code}
    assert sum(sql.startswith("begin") for sql in map(str.lower, seen)) == 1, "more than one group"
    for reply in replies:
        if reply.claim and not reply.repeat:
            home.running.node.given(reply)
    return seen


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """SQLite only: its connection tells what it is told to do."""
    return f"sqlite:///{tmp_path / 'deedbox.db'}"


@pytest.fixture(autouse=True)
async def quiet(home: Home) -> None:
    """Let what runs at the start have run, and keep what runs every second away."""
    await asyncio.sleep(0.1)


@pytest.mark.case("fed:C2")
async def test_fifty_questions_cost_the_statements_of_one(home: Home) -> None:
    """Also no look-up of its own whether a message was there before: the group asks once, under its lock."""
    one = await cost(home, [home.letter()])
    fifty = await cost(home, [home.letter(conversation=f"conv_{number}") for number in range(50)])
    assert fifty == one
    assert len(one) < 25, one
    assert sum("govern_claim" in sql for sql in fifty) == 2
    assert not any(sql.lower().startswith(("savepoint", "update", "delete")) for sql in fifty)


@pytest.mark.parametrize("sort", ["stranger", "repeat", "event", "sealed", "invoke"])
async def test_so_do_fifty_of_every_other_sort(home: Home, sort: str) -> None:
    stranger = P256Pair.generate()
    spent = home.letter()
    await in_one_group(home, [spent])

    def made() -> dict[str, Any]:
        if sort == "stranger":
            return home.letter(sender="nobody@elsewhere.example", pair=stranger)
        if sort == "repeat":
            return spent
        if sort == "sealed":
            return home.sealed_letter(body={"text": "x"})
        return home.letter(sort, {"key": "NOW", "args": ""})

    code = {"repeat": "replay_rejected", "invoke": "capability_required"}.get(sort)
    one = await cost(home, [made()], code)
    assert await cost(home, [made() for _ in range(50)], code) == one


async def test_forgeries_cost_the_statements_of_one(home: Home) -> None:
    def forged() -> dict[str, Any]:
        return home.letter(sender=ALICE, pair=pair_of(MALLORY))

    one = await cost(home, [forged()], "bad_signature")
    assert await cost(home, [forged() for _ in range(20)], "bad_signature") == one


async def test_no_session_is_opened_for_a_message(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    connection: Any = home.running.kernel.database._writer._connection
    monkeypatch.setattr(type(connection), "session", lambda self: pytest.fail("an ORM session was opened"))
    heard = await asyncio.gather(*(home.say(kind, {"text": "x"}) for kind in ("query", "event", "propose", "result")))
    assert {each.kind for each in heard} == {"result", "event"}
