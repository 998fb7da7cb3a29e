"""The road: what is an entry and what an event, what breaks and what it costs, acts inside and outside (§3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deedbox import Allow, Anonymous, Effect, Ended, Node, Object, Operation, Receipt, Refusal, Text, Unit
from deedbox.govern.limits import QUOTAS
from deedbox.govern.owner import LocalOwner
from deedbox.testing import FrozenClock
from tests.kernel.bare_node import a_bare_node
from tests.kernel.road_scene import (
    ALICE,
    Badge,
    Judge,
    Watcher,
    an_object,
    ask,
    by_key,
    intent,
    rows_of,
    spending,
    toys,
    written,
)

DISCLOSURE = Effect.DISCLOSURE
FORGED, STRANGER = Badge("mallory", good=False), Badge("someone", recognised=False)
OWNER = LocalOwner(0)
Start = Callable[..., Awaitable[Node]]


@pytest.fixture
async def start(tmp_path: Path, database_url: str, clock: FrozenClock) -> AsyncIterator[Start]:
    """Makes the node with a plugin of these objects, policies and observers."""
    async with AsyncExitStack() as stack:

        async def made(*objects: Object[Any], **more: Any) -> Node:
            plugin = toys(*objects, **more)
            return await stack.enter_async_context(a_bare_node(tmp_path, plugin, database=database_url, clock=clock))

        yield made


def breaks(unit: Unit, given: Text, operation: Operation) -> str:
    unit.put(QUOTAS, {"key": "left behind", "used_until": 1})
    unit.change("insert into govern_quota (key, used_until) values ('changed', 1)")
    raise ValueError("a bug")


def breaks_softly(unit: Unit, given: Text, operation: Operation) -> str:
    unit.put(QUOTAS, {"key": "left behind", "used_until": 1})
    raise ValueError("a bug")


def refuses(unit: Unit, given: Text, operation: Operation) -> str:
    raise Refusal("not_now", 409, "later", extra={"hint": 1})


def paid(operation: Operation) -> Any:
    return Allow((Price(),), policy="paid") if operation.intent.object_key.startswith("PAID") else by_key(operation)


@dataclass(frozen=True)
class Price:
    def apply(self, unit: Unit) -> None:
        unit.put(QUOTAS, {"key": "spent", "used_until": 1})

    def describe(self) -> dict[str, Any]:
        return {"capability": "cap_1"}


# --- what is an entry and what an event (decision 32) ----------------------------------------------------------------

OBJECTS = (
    an_object("RUN"),
    an_object("RUN_PUBLIC", public=True),
    an_object("SHOW", effect=DISCLOSURE),
    an_object("SHOW_PUBLIC", effect=DISCLOSURE, public=True),
    an_object("PAID_SHOW", effect=DISCLOSURE),
    an_object("BREAK", breaks),
    an_object("BREAK_SHOW", breaks_softly, effect=DISCLOSURE),
    an_object("REFUSE", refuses),
    an_object("NO_RUN"),
    an_object("NO_SHOW", effect=DISCLOSURE),
    an_object("HELD_RUN"),
    an_object("HELD_SHOW", effect=DISCLOSURE),
)
TABLE = [
    ("RUN", ALICE, {}, "entry", "executed"),
    ("RUN", OWNER, {}, "entry", "executed"),
    ("BREAK", ALICE, {}, "entry", "failed"),
    ("REFUSE", ALICE, {}, "entry", "refused"),
    ("NO_RUN", ALICE, {}, "entry", "refused"),
    ("NO_SHOW", ALICE, {}, "entry", "refused"),
    ("HELD_RUN", ALICE, {}, "entry", "held"),
    ("HELD_SHOW", ALICE, {}, "event", "held"),
    ("NOWHERE", ALICE, {}, "entry", "refused"),
    ("RUN", ALICE, {"arguments": {"text": 1}}, "entry", "refused"),
    ("SHOW", ALICE, {}, "event", "executed"),
    ("BREAK_SHOW", ALICE, {}, "event", "failed"),
    ("PAID_SHOW", ALICE, {}, "entry", "executed"),
    ("RUN", ALICE, {"dry": True}, "event", "shaped"),
    ("NO_RUN", ALICE, {"dry": True}, "entry", "refused"),
    ("SHOW_PUBLIC", Anonymous(), {}, "event", "executed"),
    ("SHOW", Anonymous(), {}, "event", "refused"),
    ("RUN_PUBLIC", Anonymous(), {}, "event", "refused"),
    ("NOWHERE", Anonymous(), {}, "event", "refused"),
    ("NO_SHOW", STRANGER, {}, "event", "refused"),
    ("RUN", STRANGER, {}, "entry", "executed"),
    ("RUN", FORGED, {}, "event", "refused"),
    ("RUN", object(), {}, "event", "refused"),
]


@pytest.mark.parametrize(("key", "credential", "more", "where", "kind"), TABLE)
async def test_what_is_an_entry_and_what_an_event(
    start: Start, key: str, credential: Any, more: dict[str, Any], where: str, kind: str
) -> None:
    node = await start(*OBJECTS, policies=[Judge("paid", paid)])
    asking = intent(node, key, credential=credential)
    for name, value in more.items():
        setattr(asking, name, value)
    reply = await node.govern(asking)
    lines = await written(node)
    assert [(line.where, line.kind) for line in lines] == [(where, kind)]
    said = lines[0].said
    assert (said["object"], said["ended"]) == (key, kind)
    if reply.receipt is None:
        assert said["actor"] == "unrecognised"
    else:
        assert (reply.receipt.seq, reply.receipt.event) == ((1, None) if where == "entry" else (None, 1))
    assert await rows_of(node, "govern_quota") == ([("spent", 1)] if key == "PAID_SHOW" else [])


async def test_a_receipt_says_where_it_is_and_never_what_was_said(start: Start) -> None:
    node = await start(an_object("RUN"), an_object("SHOW", effect=DISCLOSURE))
    run = await ask(node, "RUN", "the secret", inputs_sha256="1" * 64, subject={"msg": "msg_1"})
    shown = await ask(node, "SHOW", "the secret")
    assert run.receipt is not None
    assert shown.receipt is not None
    assert run.receipt.public() == {
        "id": run.receipt.invocation,
        "seq": 1,
        "leaf": run.receipt.leaf.hex(),
        "checkpoint": None,
    }
    assert set(shown.receipt.public()) == {"id", "hash", "batch"}
    entry, _ = await written(node)
    assert "the secret" not in str(entry)
    assert entry.said == {
        "surface": "test",
        "object": "RUN",
        "actor": "alice",
        "ended": "executed",
        "inputs_sha256": "1" * 64,
        "output_sha256": entry.said["output_sha256"],
        "invocation": run.receipt.invocation,
        "msg": "msg_1",
    }


async def test_the_same_content_under_two_ids_is_two_facts(start: Start) -> None:
    """Deciding twice is two facts; only an id is ever the same (fed:D9)."""
    node = await start(an_object("RUN"))
    for id_ in ("one", "two"):
        assert (await node.govern(spending(node, "RUN", id_))).outcome.ok
    assert [line.kind for line in await written(node)] == ["executed", "executed"]


# --- what breaks, and what it costs ----------------------------------------------------------------------------------


async def test_what_a_broken_run_did_is_undone_and_its_failure_kept(start: Start) -> None:
    node = await start(an_object("BREAK", breaks), an_object("RUN"))
    reply, beside = await asyncio.gather(ask(node, "BREAK"), ask(node, "RUN"))
    assert (reply.outcome.ended, reply.outcome.code, reply.outcome.status) == (Ended.FAILED, "runner_failed", 500)
    assert "a bug" not in str(reply.answer)
    assert beside.outcome.ok
    assert await rows_of(node, "govern_quota") == []
    assert [line.kind for line in await written(node)] == ["failed", "executed"]


async def test_a_query_that_fails_in_a_disclosure_is_a_failed_disclosure(start: Start) -> None:
    """Without a savepoint an error ends a transaction on PostgreSQL: the unit is run again by itself, with one."""

    def looks(unit: Unit, given: Text, operation: Operation) -> Any:
        return unit.all("select nothing from nowhere")

    node = await start(an_object("LOOK", looks, effect=DISCLOSURE), an_object("RUN"))
    reply, beside = await asyncio.gather(ask(node, "LOOK"), ask(node, "RUN"))
    assert (reply.outcome.ended, beside.outcome.ok) == (Ended.FAILED, True)
    assert [(line.where, line.kind) for line in await written(node)] == [("entry", "executed"), ("event", "failed")]


async def test_a_judge_that_breaks_denies(start: Start) -> None:
    def breaks_judging(operation: Operation) -> Any:
        raise ValueError("a bug")

    node = await start(an_object("RUN"), policies=[Judge("by-key", by_key), Judge("broken", breaks_judging)])
    reply = await ask(node, "RUN")
    assert (reply.outcome.code, reply.outcome.status) == ("policy_failed", 403)


async def test_a_judge_whose_query_fails_denies_on_either_engine(start: Start) -> None:
    class Querying:
        name = "querying"

        def judge(self, unit: Unit, operation: Operation) -> Any:
            return unit.all("select nothing from nowhere")

    node = await start(an_object("RUN"), policies=[Judge("by-key", by_key), Querying()])
    assert (await ask(node, "RUN")).outcome.code == "policy_failed"
    assert [line.kind for line in await written(node)] == ["refused"]


async def test_a_judge_that_cannot_announce_still_judges(start: Start) -> None:
    class Announcing(Judge):
        def facts(self, intent: Any) -> Any:
            raise ValueError("a bug")

    node = await start(an_object("RUN"), policies=[Announcing("by-key", by_key)])
    assert (await ask(node, "RUN")).outcome.ok


async def test_a_believer_that_breaks_believes_nobody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await start(an_object("RUN"))

    def breaks_believing(*_: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(node.authenticator(Badge), "believe", breaks_believing)
    reply = await ask(node, "RUN")
    assert (reply.outcome.code, reply.outcome.status) == ("unauthenticated", 401)


@pytest.mark.parametrize("changes_rows", [False, True])
async def test_an_observer_that_breaks_loses_what_it_wrote_and_nothing_else(start: Start, changes_rows: bool) -> None:
    seen = []

    def watch(unit: Unit, receipt: Receipt) -> None:
        seen.append(receipt.id)
        unit.put(QUOTAS, {"key": "noted", "used_until": 1})
        if changes_rows:
            unit.change("insert into govern_quota (key, used_until) values ('changed', 1)")
        raise ValueError("a bug")

    def keeps(unit: Unit, receipt: Receipt) -> None:
        unit.put(QUOTAS, {"key": "kept", "used_until": 1})

    watchers = [Watcher(watch, changes_rows=changes_rows), Watcher(keeps)]
    node = await start(an_object("RUN"), observers=watchers)
    reply = await ask(node, "RUN")
    assert reply.receipt is not None
    assert (reply.outcome.ok, seen) == (True, [reply.receipt.id])
    assert [row.key for row in await rows_of(node, "govern_quota")] == ["kept"]
    assert [line.kind for line in await written(node)] == ["executed"]


async def test_observers_are_told_of_refusals_and_repeats_too(start: Start) -> None:
    seen: list[Any] = []
    node = await start(
        an_object("RUN"),
        observers=[Watcher(lambda unit, receipt: seen.append(receipt.outcome.code))],  # type: ignore[union-attr]
    )
    await node.govern(spending(node, "RUN", "one"))
    await node.govern(spending(node, "RUN", "one"))
    await ask(node, "NO_RUN")
    await ask(node, "RUN", credential=FORGED)
    assert seen == [None, "replay_rejected", "unknown_object", "bad_badge"]


async def test_a_run_that_refuses_is_a_refusal_with_its_own_words(start: Start) -> None:
    node = await start(an_object("REFUSE", refuses))
    outcome = (await ask(node, "REFUSE")).outcome
    assert (outcome.ended, outcome.code, outcome.status, outcome.detail) == (Ended.REFUSED, "not_now", 409, "later")
    assert dict(outcome.extra) == {"hint": 1}


@pytest.mark.case("fed:D7")
async def test_an_effect_without_its_receipt_is_no_effect(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def changes(unit: Unit, given: Text, operation: Operation) -> str:
        unit.change("insert into govern_quota (key, used_until) values ('effect', 1)")
        return "done"

    node = await start(an_object("CHANGE", changes), an_object("RUN"))

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError("no more room")

    monkeypatch.setattr(node.ledger, "entry", fails)
    with pytest.raises(OSError, match="no more room"):
        await node.govern(spending(node, "CHANGE", "one"))
    monkeypatch.undo()
    assert await rows_of(node, "govern_quota") == []
    assert await rows_of(node, "govern_claim") == []
    assert (await node.govern(spending(node, "CHANGE", "one"))).outcome.ok


# --- hold, dry, unknown ----------------------------------------------------------------------------------------------


async def test_a_hold_says_how_to_ask_and_runs_nothing(start: Start) -> None:
    node = await start(an_object("HELD_RUN", breaks))
    outcome = (await ask(node, "HELD_RUN")).outcome
    assert (outcome.ended, outcome.status, outcome.code) == (Ended.HELD, 202, "ask_first")
    assert outcome.next_step == "ask the owner"


async def test_a_dry_asking_runs_nothing_and_costs_nothing(start: Start) -> None:
    node = await start(an_object("PAID_RUN", breaks), policies=[Judge("paid", paid)])
    reply = await ask(node, "PAID_RUN", dry=True)
    assert (reply.outcome.ended, reply.outcome.ok) == (Ended.SHAPED, True)
    assert await rows_of(node, "govern_quota") == []


async def test_an_unknown_object_is_told_what_may_have_been_meant(start: Start) -> None:
    node = await start(an_object("UPPER"), an_object("LOWER"), an_object("UPPER_SECRET", listed=False))
    outcome = (await ask(node, "UPER")).outcome
    assert (outcome.code, outcome.status) == ("unknown_object", 404)
    assert outcome.extra["did_you_mean"] == ["UPPER"]


async def test_an_unknown_object_in_an_envelope_is_carried_on_to_the_policies(start: Start) -> None:
    node = await start(an_object("RUN"))
    assert (await ask(node, "NO_SUCH", named=True)).outcome.code == "denied"
    outcome = (await ask(node, "NOWHERE", named=True)).outcome
    assert (outcome.ended, outcome.code) == (Ended.FAILED, "unknown_object")


async def test_a_grant_may_fix_the_arguments(start: Start) -> None:
    fixing = Judge("fixing", lambda operation: Allow(arguments=Text(text="fixed"), policy="fixing"))
    node = await start(an_object("RUN"), policies=[fixing])
    assert (await ask(node, "RUN", "given")).outcome.value == "fixed"
    unfit = intent(node, "RUN", token="held up")
    unfit.arguments = {"text": 1}
    assert (await node.govern(unfit)).outcome.value == "fixed"
