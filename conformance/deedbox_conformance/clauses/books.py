"""What a node writes down about messages and shows to others: its ledger and its threads (OIP 1.2 §10, §11)."""

from __future__ import annotations

import re
from typing import cast

from deedbox_conformance import wire
from deedbox_conformance.clause import Chapter, expect
from deedbox_conformance.clauses import scenes
from deedbox_conformance.probe import Exchange, Probe
from deedbox_conformance.wire import Json

ledger = Chapter("OIP-LEDGER")
threads = Chapter("OIP-THREAD")

_SERVER_LAW = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d")  # OIP 1.2 §1.3


async def _record(probe: Probe, exchange: Exchange) -> dict[str, Json]:
    """The one of this very exchange: other senders may use the same id, and a repeat has a record of its own."""
    records = await scenes.records_of(probe, exchange.sent["id"])
    expect(records, "the ledger knows no such message")
    same = [record for record in records if record.get("response_id") == exchange.reply["id"]]
    expect(same, "no record of the message names its reply by response_id")
    return same[0]


@ledger.must(
    "01", "`?msg=` finds a message by id, with the body hash both sides join on, and its answer's.", "§10.1, §10.3"
)
async def joined(probe: Probe) -> None:
    exchange = await probe.scene(scenes.question)
    record = await _record(probe, exchange)
    expect(record.get("msg_id", record.get("id")) == exchange.sent["id"], "the record bears another id")
    expect(record.get("body_sha256") == exchange.sent["body_sha256"], "body_sha256 is not that of the envelope")
    same = record.get("response_body_sha256") == exchange.reply.get("body_sha256")
    expect(same, "response_body_sha256 is not that of the reply")


@ledger.should("02", "`?msg=` answers in both shapes, `records` and `record`.", "§10.3")
async def both_shapes(probe: Probe) -> None:
    exchange = await probe.scene(scenes.proposal if probe.has_peer else scenes.question)
    await _record(probe, exchange)
    told = (await scenes.ledger(probe, msg=str(exchange.sent["id"]))).members()
    listed, single = told.get("records"), told.get("record")
    expect(isinstance(listed, list) and listed, "there are no `records`")
    expect(isinstance(single, dict), "there is no `record`")
    expect(cast("dict[str, Json]", single).get("body_sha256") == exchange.sent["body_sha256"], "the two disagree")


@ledger.must("03", "A record says when, whence, how believed and with what verdict and status.", "§10.2, §8.3")
async def whole_record(probe: Probe) -> None:
    exchange = await probe.scene(scenes.known_question)
    record = await _record(probe, exchange)
    ts = str(record.get("ts"))
    expect(_SERVER_LAW.fullmatch(ts), f"ts {ts} is not of the form YYYY-MM-DDTHH:MM:SS±HH:MM")
    expected: dict[str, Json] = {
        "kind": "FED_INBOX",
        "direction": "inbound",
        "verdict": "echoed",
        "status": 200,
        "sender_verified": True,
    }
    for name, value in expected.items():
        expect(record.get(name) == value, f"{name} is {record.get(name)!r} instead of {value!r}")


@ledger.must("04", "A refused message stands in the ledger with its verdict and virtual status.", "§8.3")
async def refusals(probe: Probe) -> None:
    forged = await scenes.shown(probe, await probe.scene(scenes.forged))
    if not forged and await probe.wait(scenes.REFUSALS_SECONDS):
        forged = await scenes.shown(probe, await scenes.forgery(probe))
    seen = [
        (forged, "rejected:bad_signature", 401),
        (await scenes.shown(probe, await probe.scene(scenes.replayed)), "replay_rejected", 409),
        (await scenes.shown(probe, await probe.scene(scenes.uncredited)), "denied:capability_invalid", 401),
    ]
    for told, verdict, status in seen:
        expect((verdict, status) in told, f"the ledger says {told} instead of {(verdict, status)}")


@ledger.must("05", "What was refused with an HTTP status is not shown.", "§8.3")
async def unread(probe: Probe) -> None:
    envelope, _ = await probe.scene(scenes.misaddressed)
    answer = await scenes.ledger(probe, msg=str(envelope["id"]))
    expect(answer.status in (200, 404), f"HTTP {answer.status} for an unknown message")
    expect(not scenes.records_in(answer.members()), "a message to nobody here is shown")


@ledger.must("06", "Without `msg` it lists the newest records, at most `limit`, and counts them.", "§10.1")
async def listed(probe: Probe) -> None:
    await probe.scene(scenes.another_question)
    for limit in (1, 2):
        told = (await scenes.ledger(probe, limit=str(limit))).members()
        records = told.get("records")
        expect(isinstance(records, list) and 1 <= len(records) <= limit, f"limit={limit} lists {records!r:.80}")
        expect(told.get("ok") is True and told.get("count") == len(cast("list[Json]", records)), "ok or count is wrong")


@ledger.must("07", "It shows neither a body nor a token.", "§10.2")
async def discreet(probe: Probe) -> None:
    for exchange in (await probe.scene(scenes.known_question), await probe.scene(scenes.uncredited)):
        await scenes.records_of(probe, exchange.sent["id"])
        shown = (await scenes.ledger(probe, msg=str(exchange.sent["id"]))).body.decode("utf-8", "replace")
        expect(scenes.ORDER not in shown and '"body"' not in shown, "a body is shown")
        expect(scenes.MADE_UP_TOKEN not in shown, "a token is shown")


# --- threads ---------------------------------------------------------------------------------------------


async def _thread(probe: Probe, exchange: Exchange) -> dict[str, Json]:
    """The document of an exchange's thread; a moment is granted for it to appear."""
    conversation = str(exchange.sent["conversation"])
    for _ in range(5):
        answer = await probe.get("/oip/conversation", {"id": conversation})
        if answer.status == 200:
            break
        await probe.wait(0.2)
    expect(answer.status == 200, f"HTTP {answer.status} for a thread just used")
    thread = answer.members().get("conversation")
    expect(isinstance(thread, dict) and thread.get("id") == conversation, "`conversation` is not that thread")
    return cast("dict[str, Json]", thread)


def _messages(thread: dict[str, Json]) -> list[dict[str, Json]]:
    listed = thread.get("messages")
    return [cast("dict[str, Json]", entry) for entry in (listed if isinstance(listed, list) else [])]


def _expect_state(thread: dict[str, Json], state: str, next_kinds: set[str]) -> None:
    expect(thread.get("state") == state, f"state is {thread.get('state')!r} instead of {state}")
    allowed = thread.get("allowed_next_kinds")
    expect(isinstance(allowed, list) and set(allowed) == next_kinds, f"allowed_next_kinds is {allowed!r}")


@threads.must(
    "01", "A thread lists both participants and both messages, with id, kind, direction and hash.", "§11.1, §11.2"
)
async def thread_document(probe: Probe) -> None:
    exchange = await probe.scene(scenes.known_question)
    thread = await _thread(probe, exchange)
    people = [str(one).lower() for one in cast("list[Json]", thread.get("participants") or [])]
    expect(people == [probe.peer.agent, str(exchange.sent["to"]).lower()], f"participants are {people}")
    entries = {entry.get("msg_id"): entry for entry in _messages(thread)}
    for envelope, direction in ((exchange.sent, "inbound"), (exchange.reply, "outbound")):
        entry = entries.get(envelope["id"], {})
        expect(entry.get("direction") == direction, f"the {direction} message is missing")
        expect(entry.get("kind") == envelope["kind"], f"the {direction} message has kind {entry.get('kind')!r}")
        expect(entry.get("body_sha256") == envelope["body_sha256"], f"the {direction} message has another hash")


@threads.must("02", "Once its query is answered a thread is closed and open for a new request.", "§11.3, §11.4")
async def closed(probe: Probe) -> None:
    thread = await _thread(probe, await probe.scene(scenes.known_question))
    _expect_state(thread, "closed", {"query", "propose", "invoke"})
    expect(thread.get("unresolved_requests") == [], "a request is said to be unresolved")


@threads.must("03", "A proposal is an open commitment with its summary; the thread is `proposed`.", "§11.3, §11.4")
async def proposed(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    exchange = await probe.ask("propose", {"summary": "mend the north wall"})
    thread = await _thread(probe, exchange)
    _expect_state(thread, "proposed", {"accept", "reject", "query", "invoke", "cancel", "error"})
    open_ones = cast("list[dict[str, Json]]", thread.get("open_commitments") or [])
    told = [(entry.get("msg_id"), entry.get("summary")) for entry in open_ones]
    expect(told == [(exchange.sent["id"], "mend the north wall")], f"open_commitments are {told}")


@threads.must("04", "A cancel by who opened the thread ends it and empties its lists.", "§11.3, §11.4")
async def ended(probe: Probe) -> None:
    exchange, _ = await probe.scene(scenes.cancelled)
    thread = await _thread(probe, exchange)
    _expect_state(thread, "cancelled", set())
    expect(thread.get("open_commitments") == [], "a commitment is still open")


@threads.must("05", "A request into a cancelled thread is refused as `conversation_cancelled`.", "§11.6", "node")
async def after_the_end(probe: Probe) -> None:
    _, late = await probe.scene(scenes.cancelled)
    scenes.expect_refused(late, "conversation_cancelled")


@threads.must("06", "Nobody else can cancel a thread by naming its id.", "§11.6", "node")
async def third_party(probe: Probe) -> None:
    conversation = (await probe.scene(scenes.known_question)).sent["conversation"]
    await probe.ask("cancel", {}, sender=probe.peer.second, conversation=conversation)
    scenes.expect_result(await probe.ask("query", {"text": "still open?"}, conversation=conversation))


@threads.must("07", "An unknown thread is answered 404 `conversation_not_found`.", "§11.1")
async def unknown_thread(probe: Probe) -> None:
    await probe.document()
    answer = await probe.get("/oip/conversation", {"id": wire.new_id("conv")})
    expect(answer.status == 404, f"HTTP {answer.status}")
    told = answer.members()
    expect((told.get("ok"), told.get("error")) == (False, "conversation_not_found"), f"it says {told.get('error')!r}")


@threads.must("08", "The list shows strangers ids, states and counts, and no participant.", "§11.6", "node")
async def list_for_strangers(probe: Probe) -> None:
    await probe.scene(scenes.question)
    answer = await probe.get("/oip/conversation", {"limit": "5"})
    expect(answer.status == 200, f"HTTP {answer.status}")
    told = answer.members()
    listed_ones = cast("list[dict[str, Json]]", told.get("conversations") or [])
    expect(1 <= len(listed_ones) <= 5 and told.get("count") == len(listed_ones), "the list or its count is wrong")
    for thread in listed_ones:
        expect({"id", "state", "messages"} <= set(thread), f"an entry has members {sorted(thread)}")
        expect("@" not in str(thread.get("participants", "")), "participants are shown")


CLAUSES = [*ledger.clauses, *threads.clauses]
