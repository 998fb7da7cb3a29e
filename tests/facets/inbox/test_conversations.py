"""Conversations: the law of the vectors' traces, whose a thread is, and what of it is shown (OIP 1.2 §11)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deedbox.delivery.exchange import SentExchange, ending
from deedbox.envelope.outbox import Letter, queue_message
from deedbox.identity.keys import P256Pair
from deedbox_https import Https
from deedbox_inbox.conversation import MOST_OPEN, Message, State, advance
from tests.facets.inbox.conftest import Start
from tests.facets.inbox.scene import ALICE, AT, MALLORY, NODE, STRANGER, Home, pair_of, seal, vector

TRACES = vector("conversation")["traces"]
DIFFERENT = {("question before deciding leaves state proposed after the decision (reference quirk)", "m3"): "open"}
"""Where this node does better by OIP 1.2 §11.6: once a decision leaves only requests, the thread is open."""
OPEN_AGAIN = ["query", "propose", "invoke", "result", "event", "cancel", "error"]


def message_of(told: dict[str, Any]) -> Message:
    body = told["body"]
    return Message(
        told["id"],
        told["kind"],
        told["from"],
        AT,
        told["in_reply_to"],
        body.get("decision"),
        body.get("summary", ""),
        body.get("key"),
    )


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["name"])
def test_the_law_follows_the_traces(trace: dict[str, Any]) -> None:
    state = State()
    for told, after in zip(trace["messages"], trace["states"], strict=True):
        advance(state, message_of(told))
        assert state.state == DIFFERENT.get((trace["name"], after["after"]), after["state"])
        assert [each["msg_id"] for each in state.open_commitments] == after["open_commitments"]
        assert [each["msg_id"] for each in state.unresolved_requests] == after["unresolved_requests"]
    assert (state.final["kind"] if state.final else None) == trace["final"]
    expected = OPEN_AGAIN if (trace["name"], "m3") in DIFFERENT else trace["allowed_next_kinds"]
    assert list(state.allowed_next_kinds) == expected


def test_what_is_open_in_a_thread_is_bounded() -> None:
    state = State()
    for number in range(3 * MOST_OPEN):
        advance(state, Message(f"q{number}", "query", ALICE, AT))
        advance(state, Message(f"p{number}", "propose", ALICE, AT, summary="x" * 500))
    assert len(state.unresolved_requests) == len(state.open_commitments) == MOST_OPEN
    assert state.unresolved_requests[-1]["msg_id"] == f"q{3 * MOST_OPEN - 1}"
    assert len(state.open_commitments[0]["summary"]) == 200


# --- documents ---------------------------------------------------------------------------------------------------


async def test_the_document_has_the_shape_of_the_vector(home: Home) -> None:
    sent = home.letter(body={"text": "hello"}, conversation="conv_EBESExQVFhcY")
    heard = await home.post(sent)
    answer = (await home.running.get("/oip/conversation?id=conv_EBESExQVFhcY")).json()
    shape = vector("conversation-doc")
    assert set(answer) == set(shape)
    thread, told = answer["conversation"], shape["conversation"]
    assert set(thread) == set(told)
    assert [set(each) for each in thread["messages"]] == [set(each) for each in told["messages"]]
    assert (thread["id"], thread["participants"]) == (told["id"], told["participants"])
    assert (thread["state"], thread["allowed_next_kinds"]) == (told["state"], told["allowed_next_kinds"])
    assert thread["created_at"] == thread["updated_at"] == AT
    first, second = thread["messages"]
    assert (first["msg_id"], first["direction"], first["verdict"]) == (sent["id"], "inbound", "received")
    assert (second["msg_id"], second["direction"], second["verdict"]) == (heard.members["id"], "outbound", "answered")
    assert (second["in_reply_to"], second["body_sha256"]) == (sent["id"], heard.members["body_sha256"])
    assert thread["final"] == {"kind": "result", "msg_id": heard.members["id"], "ts": AT}


async def test_an_unknown_conversation_is_not_found(home: Home) -> None:
    for name in ("conv_nothing", "a%00b", "%F0%9F%92%A9"):
        answer = await home.running.get(f"/oip/conversation?id={name}")
        assert (answer.status, answer.json()["ok"], answer.json()["error"]) == (404, False, "conversation_not_found")
    assert (await home.running.get(f"/oip/conversation?id={'x' * 201}")).status == 400


@pytest.mark.case("oip:W42", "oip:W43")
async def test_strangers_see_states_and_counts_the_newest_first(home: Home) -> None:
    for number in range(4):
        home.clock.advance(1)
        await home.say("propose" if number == 3 else "query", {"text": "x"}, conversation=f"conv_{number}")
    home.clock.advance(1)
    await home.say(sender=STRANGER, pair=P256Pair.generate(), conversation="conv_stranger")
    told = (await home.running.get("/oip/conversation?limit=3")).json()
    assert [each["id"] for each in told["conversations"]] == ["conv_stranger", "conv_3", "conv_2"]
    assert (told["ok"], told["protocol"], told["count"]) == (True, "oip-message/1", 3)
    assert told["conversations"][1] == {
        "id": "conv_3",
        "state": "proposed",
        "messages": 2,
        "open_commitments": 1,
        "unresolved_requests": 0,
        "updated_at": "2026-01-02T03:04:09.678Z",
    }
    assert "@" not in str(told["conversations"])
    owner = (await home.running.as_owner("GET", "/oip/conversation?limit=3")).json()
    assert [each["participants"] for each in owner["conversations"]] == [[STRANGER, NODE], [ALICE, NODE], [ALICE, NODE]]


async def test_a_long_thread_shows_its_last_hundred_messages(home: Home) -> None:
    await asyncio.gather(*(home.say(body={"n": number}) for number in range(60)))
    thread = await home.thread()
    assert len(thread["messages"]) == 100
    assert (await home.running.get("/oip/conversation")).json()["conversations"][0]["messages"] == 120


# --- whose a thread is -------------------------------------------------------------------------------------------


@pytest.mark.case("oip:W43")
async def test_a_third_party_touches_no_thread_by_its_name(home: Home) -> None:
    sent = home.letter("propose", {"summary": "mend the wall"})
    await home.post(sent)
    before = await home.thread()
    for kind, body in (("query", {}), ("result", {"decision": "accept"}), ("cancel", {"cancel": sent["id"]})):
        home.clock.advance(1)
        await home.say(kind, body, sender=MALLORY, in_reply_to=sent["id"])
    assert await home.thread() == before
    assert (await home.say()).kind == "result"


@pytest.mark.case("oip:W43")
async def test_two_messages_at_once_lose_nothing_of_a_thread(home: Home) -> None:
    await asyncio.gather(*(home.say("propose", {"summary": str(number)}) for number in range(20)))
    assert len((await home.thread())["open_commitments"]) == 20


@pytest.mark.case("oip:W43", "oip:W60")
async def test_an_unproven_name_never_shadows_the_proven(home: Home) -> None:
    """Not before it, not after it, and not while its domain is away."""
    keys = home.book.records.pop(ALICE)
    impostor = P256Pair.generate()
    await home.say(pair=impostor)
    assert [each["verdict"] for each in (await home.thread())["messages"]] == ["received_unverified", "answered"]
    home.book.records[ALICE] = keys
    await home.say("propose", {"summary": "mine"})
    proven = await home.thread()
    assert [each["verdict"] for each in proven["messages"]] == ["received", "answered"]
    del home.book.records[ALICE]
    home.clock.advance(5)
    await home.say(pair=impostor)
    assert await home.thread() == proven


@pytest.mark.case("oip:W60")
async def test_the_threads_of_the_unproven_are_kept_a_day(home: Home) -> None:
    await home.say(sender=STRANGER, pair=P256Pair.generate(), conversation="conv_stranger")
    await home.say()
    home.clock.advance(86_400)
    await home.job("inbox_prune")
    assert len(await home.rows("select key from inbox_thread")) == 2
    home.clock.advance(1)
    await home.job("inbox_prune")
    assert [row.other for row in await home.rows("select other from inbox_thread")] == [ALICE]
    home.clock.advance(29 * 86_400)
    await home.job("inbox_prune")
    assert await home.rows("select key from inbox_thread") == []
    assert len(await home.rows("select id from inbox_exchange")) == 2


# --- cancelling --------------------------------------------------------------------------------------------------


async def test_in_a_cancelled_conversation_nothing_more_is_asked(home: Home) -> None:
    sent = home.letter("propose", {"summary": "x"})
    await home.post(sent)
    assert (await home.say("cancel", {"cancel": sent["id"]})).kind == "event"
    thread = await home.thread()
    assert (thread["state"], thread["open_commitments"], thread["allowed_next_kinds"]) == ("cancelled", [], [])
    assert thread["final"]["kind"] == "cancel"
    for kind, body in (
        ("query", {}),
        ("propose", {"text": "again"}),
        ("invoke", {"key": "NOW"}),
        ("invoke", {"key": 7}),
    ):
        late = home.letter(kind, body)
        heard = await home.post(late)
        assert (heard.kind, heard.reason) == ("error", "conversation_cancelled")
        assert heard.verdict == ("denied:conversation_cancelled", 409)
        assert (await home.post(late)).reason == "replay_rejected"
    assert (await home.say("event", {"text": "done"})).kind == "event"
    after = await home.thread()
    assert (after["state"], after["open_commitments"], after["unresolved_requests"]) == ("cancelled", [], [])
    assert after["final"] == thread["final"]
    assert (await home.say(conversation="conv_other")).kind == "result"


async def sent_by_node(home: Home, kind: str = "query", **told: Any) -> str:
    """Let the road know how the delivery of a message of the node ended, as its outbox does."""
    message_id = home.running.kernel.ids.new("msg")
    exchange = {
        "message_id": message_id,
        "msg_kind": kind,
        "sender": NODE,
        "recipient": ALICE,
        "conversation": "conv_test",
        "in_reply_to": None,
        "body_sha256": "0" * 64,
        "sent_at": home.clock.now(),
        "attempts": 1,
        "verdict": "send",
        "status": 200,
    }
    intent = ending(SentExchange(**(exchange | told)), "test", home.clock.now(), lambda unit: None)
    assert (await home.running.node.govern(intent)).outcome.ok
    return message_id


@pytest.fixture
async def sending(start: Start) -> Home:
    """A home that also sends."""
    return await start(facets={"https": {}}, plugins={"https": Https})


async def test_a_message_of_ours_and_its_reply_are_in_the_thread(sending: Home) -> None:
    answer: dict[str, Any] = {"response_id": "msg_their_reply", "response_kind": "result", "response_verified": True}
    message_id = await sent_by_node(sending, response_body_sha256="1" * 64, **answer)
    thread = await sending.thread()
    assert (thread["state"], thread["participants"]) == ("closed", [NODE, ALICE])
    told = [(each["msg_id"], each["direction"], each["verdict"]) for each in thread["messages"]]
    assert told == [(message_id, "outbound", "sent"), ("msg_their_reply", "inbound", "received")]
    record = await sending.record(message_id)
    assert (record["kind"], record["direction"], record["verdict"]) == ("FED_SEND", "outbound", "send")


async def test_a_reply_that_proves_nothing_is_not_in_the_thread(sending: Home) -> None:
    message_id = await sent_by_node(sending, response_id="msg_somebodys", response_kind="result")
    thread = await sending.thread()
    assert [each["msg_id"] for each in thread["messages"]] == [message_id]
    assert [each["msg_id"] for each in thread["unresolved_requests"]] == [message_id]


async def test_what_never_arrived_is_in_the_ledger_and_in_no_thread(sending: Home) -> None:
    message_id = await sent_by_node(sending, verdict="undeliverable", status=504, reason="recipient_unresolvable:x")
    record = await sending.record(message_id)
    assert (record["verdict"], record["reason"]) == ("undeliverable", "recipient_unresolvable:x")
    assert (await sending.running.get("/oip/conversation?id=conv_test")).status == 404


async def test_a_decision_settles_our_proposal(sending: Home) -> None:
    for decision in ("accept", "reject"):
        proposal = await sent_by_node(sending, "propose", summary="run NOW once")
        thread = await sending.thread()
        assert thread["open_commitments"] == [{"msg_id": proposal, "from": NODE, "summary": "run NOW once"}]
        assert "accept" in thread["allowed_next_kinds"]
        await sending.say("event", {"text": "let me think"}, in_reply_to=proposal)
        assert (await sending.thread())["state"] == "proposed"
        await sending.say("result", {"decision": decision}, in_reply_to=proposal)
        thread = await sending.thread()
        assert (thread["state"], thread["open_commitments"]) == ("closed", [])


async def test_after_a_decision_open_requests_leave_the_thread_open(sending: Home) -> None:
    proposal = await sent_by_node(sending, "propose", summary="x")
    await sent_by_node(sending)
    await sending.say("result", {"decision": "accept"}, in_reply_to=proposal)
    thread = await sending.thread()
    assert (thread["state"], len(thread["unresolved_requests"])) == ("open", 1)
    assert set(thread["allowed_next_kinds"]) == set(OPEN_AGAIN)


async def test_who_neither_opened_nor_sent_may_not_cancel(sending: Home) -> None:
    ours = await sent_by_node(sending)
    before = await sending.thread()
    for body, answered in (({}, None), ({"cancel": ours}, None), ({"cancel": 7}, ours)):
        heard = await sending.say("cancel", body, in_reply_to=answered)
        assert (heard.kind, heard.reason) == ("error", "cancel_not_yours")
        assert heard.verdict == ("denied:cancel_not_yours", 403)
    after = await sending.thread()
    assert (after["state"], after["unresolved_requests"]) == (before["state"], before["unresolved_requests"])
    assert after["final"] is None


@pytest.mark.parametrize("named", ["body", "in_reply_to"])
async def test_who_sent_a_message_may_cancel_it(sending: Home, named: str) -> None:
    await sent_by_node(sending)
    mine = sending.letter("propose", {"summary": "mine"})
    await sending.post(mine)
    body = {"cancel": mine["id"]} if named == "body" else {}
    heard = await sending.say("cancel", body, in_reply_to=mine["id"] if named == "in_reply_to" else None)
    assert heard.kind == "event"
    assert (await sending.thread())["state"] == "cancelled"


async def test_a_thread_may_begin_with_its_cancel(home: Home) -> None:
    assert (await home.say("cancel")).kind == "event"
    assert (await home.thread())["state"] == "cancelled"


async def test_a_refused_proposal_is_no_commitment(home: Home) -> None:
    await home.say("cancel")
    await home.say("propose", {"summary": "x"})
    assert (await home.thread())["open_commitments"] == []


async def test_a_token_in_a_summary_is_taken_out(home: Home) -> None:
    token = vector("envelope-invoke")["capability"]
    await home.say("propose", {"summary": f"use {token}"})
    assert (await home.thread())["open_commitments"][0]["summary"] == "use [redacted]"


async def test_what_we_seal_is_in_no_open_document_either(sending: Home) -> None:
    """The outbox keeps nothing of a sealed proposal for the thread, which anybody may read who knows its name."""
    body = {"summary": "the north wall is thin"}
    enc = seal(body, to=pair_of(ALICE).public)
    parts: dict[str, Any] = {
        "kind": "propose",
        "sender": NODE,
        "recipient": ALICE,
        "conversation": "conv_test",
        "body": body,
    }
    database, far = sending.running.kernel.database, sending.clock.now() + 10**9
    for block in (enc, None):
        letter = Letter(**parts, enc=block)
        await database.run(lambda unit, each: queue_message(unit, sending.running.node, each, run_at=far), letter)
    rows = await sending.rows("select summary from envelope_message order by id")
    assert [row.summary for row in rows] == ["", "the north wall is thin"]
