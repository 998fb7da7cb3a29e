"""The outbox: the same message until it has arrived or five days are over, and only its own reply believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox import Intent, OwnerKey, Refusal
from deedbox.canonical import sha256_hex
from deedbox.delivery import FED_SENT, send_message
from deedbox.delivery.exchange import Wordless
from deedbox.delivery.sending import backoff
from deedbox.envelope.outbox import cancel_message, prune_messages
from deedbox.envelope.seal import seal_body
from deedbox.govern.owner import make_owner_key
from deedbox.identity.keys import P256Pair
from deedbox.jobs import perform, working
from tests.kernel.https_peer import hang_up, plain
from tests.kernel.outbox_peer import BETA, DOCUMENT, status
from tests.kernel.outbox_scene import ALPHA, TOKEN, Scene, a_scene

HOUR = 3600


@pytest.fixture
async def scene(tmp_path: Path, database_url: str) -> AsyncIterator[Scene]:
    async with a_scene(tmp_path, database_url) as made:
        yield made


# --- arriving -----------------------------------------------------------------------------------------------------


async def test_a_message_arrives_and_its_reply_is_kept_and_told(scene: Scene) -> None:
    message_id = await scene.queue("query", conversation="c7", cause="entry:3")
    assert await scene.turn() == 1
    standing = await scene.standing(message_id)
    assert (standing.state, standing.status, standing.detail, standing.response_verified) == (
        "delivered",
        200,
        "",
        True,
    )
    assert isinstance(standing.response, dict)
    assert standing.response["in_reply_to"] == message_id
    assert [(each.number, each.status, each.sent) for each in standing.attempts] == [(1, 200, True)]
    (row,) = await scene.rows("select contents from envelope_message")
    assert row.contents is None
    (sent,) = scene.beta.received
    (told,) = scene.seen
    assert (told.message_id, told.msg_kind, told.sender, told.recipient) == (message_id, "query", ALPHA, BETA)
    assert (told.conversation, told.body_sha256, told.verdict, told.status) == ("c7", sent["body_sha256"], "send", 200)
    assert (told.response_id, told.response_kind) == (standing.response_id, "result")
    assert told.response_body_sha256 == standing.response["body_sha256"]
    (event,) = [each for each in await scene.events() if each["object"] == "FED_SENT"]
    assert (event["actor"], event["msg"], event["body_sha256"]) == ("node:entry:3", message_id, sent["body_sha256"])
    entries = [orjson.loads(bytes(row.payload)) for row in await scene.rows("select payload from ledger_payload")]
    assert [each for each in entries if each.get("object") == "FED_SENT"] == [], "its end is an event (decision 32)"


async def test_sent_at_once_is_answered_at_once_and_not_sent_again(scene: Scene) -> None:
    async with working(scene.node, poll=0.05):
        message_id = await scene.queue(run_at=scene.clock.now() + 60_000)
        standing = await send_message(scene.node, message_id)
        scene.clock.advance(61)
        await asyncio.sleep(0.2)
    assert standing.ok
    assert standing.response_body == {"ok": True}
    assert standing.sent is not None
    assert (standing.sent["id"], standing.sent["body"]) == (message_id, {"text": "hello"})
    assert len(scene.beta.received) == 1
    assert (await send_message(scene.node, message_id)).response_id == standing.response_id
    assert len(scene.beta.received) == 1


async def test_a_worker_sends_what_is_queued_without_being_asked(scene: Scene) -> None:
    async with working(scene.node, poll=30):
        message_id = await scene.queue()
        async with asyncio.timeout(10):
            while (await scene.standing(message_id)).state != "delivered":  # noqa: ASYNC110  # it watches a table
                await asyncio.sleep(0.01)


async def test_what_the_reply_says_of_a_run_and_of_a_proposal_is_told(scene: Scene) -> None:
    scene.beta.at_inbox(scene.beta.reply(body={"invoked": True, "invocation_id": "inv_12345678"}))
    await scene.queue("invoke", body={"key": "UPPER", "args": "x"}, capability=TOKEN)
    await scene.turn()
    scene.beta.at_inbox(scene.beta.reply(body={"decision": "accept"}))
    await scene.queue("propose", body={"summary": "s" * 300})
    await scene.turn()
    scene.beta.at_inbox(scene.beta.reply("error", {"reason": "conversation_cancelled"}))
    await scene.queue("result", body={"decision": "reject"}, in_reply_to="msg_abcdefgh")
    await scene.turn()
    run, proposal, decision = scene.seen
    assert (run.key, run.invocation_id) == ("UPPER", "inv_12345678")
    assert (proposal.summary, proposal.decision) == ("s" * 200, "accept")
    assert (decision.sent_decision, decision.in_reply_to) == ("reject", "msg_abcdefgh")
    assert (decision.response_kind, decision.reason) == ("error", "conversation_cancelled")


async def test_a_sealed_reply_is_opened_for_whoever_waits(scene: Scene) -> None:
    key = scene.node.kernel.agents.pair(ALPHA, scene.clock.now()).public
    message_id = await scene.queue()
    enc = seal_body({"invocation_id": "inv_sealed78"}, key, sender=BETA, recipient_id=ALPHA, message_id="msg_reply4you")
    scene.beta.at_inbox(scene.beta.reply(enc=enc, id="msg_reply4you"))
    standing = await send_message(scene.node, message_id)
    assert standing.response_verified
    assert standing.response_body == {"invocation_id": "inv_sealed78"}
    assert scene.seen[0].invocation_id == "inv_sealed78"
    assert "inv_sealed78" not in str(standing.response)


# --- whose reply it is --------------------------------------------------------------------------------------------

STRANGER = P256Pair.generate()


def other_body(members: dict[str, Any]) -> dict[str, Any]:
    return members | {"body": {"ok": False}}


@pytest.mark.case("oip:W55")
@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"sender": "other@beta.test"}, "reply_from_another"),
        ({"recipient": "other@alpha.test"}, "reply_to_another"),
        ({"in_reply_to": "msg_ofsomebodyelse"}, "reply_to_other_message"),
        ({"in_reply_to": None}, "reply_to_other_message"),
        ({"conversation": "c2"}, "reply_in_other_conversation"),
        ({"kind": "query"}, "reply_of_wrong_kind"),
        ({"pair": STRANGER}, "bad_signature"),
        ({"twist": other_body}, "body_hash_mismatch"),
        ({"twist": lambda members: members | {"signature": None}}, "missing_signature"),
        ({"twist": lambda members: {"hello": "there"}}, "reply_wrong_protocol"),
    ],
)
async def test_an_envelope_that_is_not_our_reply_proves_nothing(scene: Scene, reply: dict[str, Any], why: str) -> None:
    scene.beta.at_inbox(scene.beta.reply(body={"decision": "accept", "invocation_id": "inv_12345678"}, **reply))
    message_id = await scene.queue("propose", body={"summary": "work"})
    await scene.turn()
    standing = await scene.standing(message_id)
    assert (standing.state, standing.response_verified, standing.detail) == ("delivered", False, why)
    (told,) = scene.seen
    assert (told.response_verified, told.decision, told.invocation_id, told.reason) == (False, None, None, why)


@pytest.mark.parametrize("answer", [b"", b"thanks!", b"{", b'{"a":1,"a":2}', b"\xff\xfe", b'"\0"'])
async def test_an_answer_that_is_no_envelope_is_kept_as_text(scene: Scene, answer: bytes) -> None:
    scene.beta.at_inbox(plain(answer))
    message_id = await scene.queue()
    await scene.turn()
    standing = await scene.standing(message_id)
    assert (standing.state, standing.response_verified, standing.response_kind) == ("delivered", False, None)
    assert standing.detail.startswith("reply_")
    assert isinstance(standing.response, str)


async def test_a_key_that_was_rotated_a_moment_ago_is_fetched_once_more(scene: Scene) -> None:
    await scene.queue()
    await scene.turn()  # the directory knows the old key now
    scene.clock.advance(40)
    old, scene.beta.pair = scene.beta.pair, P256Pair.generate()
    document = orjson.dumps(
        {
            "protocol": "oip-message/1",
            "domain": "beta.test",
            "agents": [
                {
                    "id": BETA,
                    "alg": "ES256",
                    "public_key_jwk": scene.beta.pair.public.jwk,
                    "inbox": "https://beta.test/oip/inbox",
                    "previous_keys": [
                        {"kid": "old", "public_key_jwk": old.public.jwk, "not_before": None, "not_after": None}
                    ],
                }
            ],
        }
    )
    scene.beta.peer.scripts[DOCUMENT] = plain(document)
    message_id = await scene.queue()
    await scene.turn()
    assert (await scene.standing(message_id)).response_verified


# --- trying again -------------------------------------------------------------------------------------------------


async def test_the_same_message_is_sent_again_never_another(scene: Scene) -> None:
    scene.beta.at_inbox(status("503 Service Unavailable"), status("429 Too Many Requests"), scene.beta.reply())
    message_id = await scene.queue()
    await scene.turn()
    assert await scene.turn() == 0, "not before its time"
    waits = [await scene.until_next(message_id) for _ in range(2)]
    assert 15 <= waits[0] <= 30 <= waits[1] <= 60
    standing = await scene.standing(message_id)
    assert (standing.state, [each.status for each in standing.attempts]) == ("delivered", [503, 429, 200])
    assert {each["id"] for each in scene.beta.received} == {message_id}
    assert {each["body_sha256"] for each in scene.beta.received} == {standing.body_sha256}


async def test_before_half_its_life_the_bytes_are_the_same_and_then_they_are_renewed(scene: Scene) -> None:
    enc = {"alg": "ECDH-P256-A256GCM", "epk": {}, "iv": "AA", "ciphertext": "AA"}
    scene.beta.at_inbox(status("503 Busy", b"{}", "Retry-After: 100"))
    message_id = await scene.queue("invoke", enc=enc, body={"key": "UPPER"}, life=300_000, capability=TOKEN)
    await scene.turn()
    await scene.until_next(message_id)  # 100 s: less than half of 300
    await scene.until_next(message_id)  # 200 s
    raw = [each.body for each in scene.beta.peer.requests if each.target == "/oip/inbox"]
    assert raw[0] == raw[1]
    first, _, third = scene.beta.received
    changed = {name for name in first if first[name] != third[name]}
    assert changed == {"created_at", "expires_at", "signature"}
    assert (third["enc"], third["body"], third["capability"]) == (enc, None, TOKEN)
    assert first["created_at"] == "2026-01-02T03:04:05.000Z"
    assert (third["created_at"], third["expires_at"]) == ("2026-01-02T03:07:25.000Z", "2026-01-02T03:12:25.000Z")


@pytest.mark.parametrize(
    ("line", "header", "seconds"),
    [
        ("503 Busy", "Retry-After: 7200", 7200),
        ("429 Slow", "Retry-After: 600", 600),
        ("503 Busy", "Retry-After: Fri, 02 Jan 2026 04:04:05 GMT", 3600),
    ],
)
async def test_retry_after_is_honoured(scene: Scene, line: str, header: str, seconds: int) -> None:
    scene.beta.at_inbox(status(line, b"{}", header))
    message_id = await scene.queue()
    await scene.turn()
    assert (await scene.standing(message_id)).next_at == scene.clock.now() + seconds * 1000


@pytest.mark.parametrize("answer", [status("500 Oops"), status("502 Bad"), status("408 Slow"), hang_up()])
async def test_what_may_pass_is_waited_for(scene: Scene, answer: Any) -> None:
    scene.beta.at_inbox(answer)
    message_id = await scene.queue()
    await scene.turn()
    standing = await scene.standing(message_id)
    assert standing.state == "queued"
    assert standing.detail
    assert scene.seen == []


@pytest.mark.case("fed:F8")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (status("404 Not Found", b'{"error":"unknown_recipient"}'), "unknown_recipient"),
        (status("400 Bad", b'{"error":"malformed_envelope","reason":"bad_id"}'), "malformed_envelope:bad_id"),
        (status("413 Too Large", b'{"error":"envelope_too_large","limit":9}'), "envelope_too_large"),
        (status("403 No", b"<html>"), "http_403"),
        (status("400 Bad", b'{"error":"Sh Ouch <script>"}'), "http_400"),
    ],
)
async def test_a_refusal_by_the_transport_is_final(scene: Scene, answer: Any, code: str) -> None:
    scene.beta.at_inbox(answer)
    message_id = await scene.queue()
    await scene.turn()
    standing = await scene.standing(message_id)
    assert (standing.state, standing.detail) == ("undeliverable", code)
    assert (scene.seen[0].verdict, scene.seen[0].reason) == ("undeliverable", code)
    scene.clock.advance(10 * HOUR)
    assert await scene.turn() == 0


async def test_an_agent_nobody_publishes_is_final_and_a_domain_that_is_down_is_not(scene: Scene) -> None:
    unknown = await scene.queue(recipient="nobody@beta.test")
    await scene.turn()
    assert (await scene.standing(unknown)).detail == "recipient_unresolvable:agent_not_published"
    assert (await scene.standing(unknown)).state == "undeliverable"
    down = await scene.queue(recipient="node@gamma.test")
    await scene.turn()
    standing = await scene.standing(down)
    assert standing.state == "queued"
    assert standing.detail.startswith("recipient_unresolvable:well_known_unreachable")


@pytest.mark.case("fed:B13")
@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"reason": "sender_unverifiable", "resolve_failure": "well_known_unreachable:timeout"}, "queued"),
        ({"reason": "sender_unverifiable", "resolve_failure": "well_known_http_503"}, "queued"),
        ({"reason": "sender_unverifiable", "resolve_failure": "agent_not_published"}, "delivered"),
        ({"reason": "expired_envelope"}, "queued"),
        ({"reason": "bad_signature"}, "delivered"),
    ],
)
async def test_a_signed_no_that_will_pass_is_no_end(scene: Scene, body: dict[str, Any], state: str) -> None:
    scene.beta.at_inbox(scene.beta.reply("error", body), scene.beta.reply())
    message_id = await scene.queue()
    await scene.turn()
    standing = await scene.standing(message_id)
    assert standing.state == state
    if state == "queued":
        await scene.until_next(message_id)
        assert (await scene.standing(message_id)).response_kind == "result"


async def test_a_stored_reply_may_be_older_than_its_life_when_we_ask_again(scene: Scene) -> None:
    then = scene.clock.now()
    scene.beta.at_inbox(status("500 Oops"), scene.beta.reply(now=then))
    message_id = await scene.queue()
    await scene.turn()
    scene.clock.advance(HOUR)
    await scene.turn()
    assert (await scene.standing(message_id)).response_verified
    scene.beta.at_inbox(scene.beta.reply(now=then))
    fresh = await scene.queue()
    await scene.turn()
    assert (await scene.standing(fresh)).detail == "expired_envelope"


def test_pauses_double_up_to_four_hours() -> None:
    assert [backoff(n) // 1000 for n in (1, 2, 3, 9, 10, 11, 90)] == [30, 60, 120, 7680, 14400, 14400, 14400]


async def test_notices_at_four_and_24_hours_and_an_end_after_five_days(scene: Scene) -> None:
    scene.beta.at_inbox(status("503 Busy"))
    message_id = await scene.queue()
    began = scene.clock.now()
    told: list[tuple[int, int]] = []
    while (await scene.standing(message_id)).state == "queued":
        await scene.turn()
        late = [each for each in await scene.events() if each["object"] == "delivery_delayed"]
        told += [(each["hours"], (each["ts"] - began) // 60_000) for each in late[len(told) :]]
        (job,) = await scene.rows("select run_at, state from jobs_job where kind = 'deliver'")
        if job.state == "waiting":
            scene.clock.advance((job.run_at - scene.clock.now()) / 1000)
    assert told == [(4, 4 * 60), (24, 24 * 60)]
    standing = await scene.standing(message_id)
    assert (standing.state, standing.detail) == ("undeliverable", "http_503")
    assert standing.ended_at == began + 5 * 24 * HOUR * 1000
    assert 30 < len(standing.attempts) < 75
    gaps = [later.at - earlier.at for earlier, later in zip(standing.attempts, standing.attempts[1:], strict=False)]
    assert max(gaps) <= 4 * HOUR * 1000
    assert len({each["id"] for each in scene.beta.received}) == 1
    assert [each.verdict for each in scene.seen] == ["undeliverable"]


# --- an invoke that may have run ----------------------------------------------------------------------------------


async def an_unanswered_invoke(scene: Scene, *then: Any) -> str:
    scene.beta.at_inbox(hang_up(), *then)
    message_id = await scene.queue("invoke", body={"key": "UPPER", "args": "x"}, capability=TOKEN)
    await scene.turn()
    (attempt,) = (await scene.standing(message_id)).attempts
    assert (attempt.sent, attempt.status) == (True, None)
    return message_id


async def test_an_unanswered_invoke_asks_the_peers_ledger_before_it_goes_again(scene: Scene) -> None:
    message_id = await an_unanswered_invoke(scene, scene.beta.reply())
    scene.beta.in_ledger(message_id, status("404 Not Found", b'{"ok":false}'))
    await scene.until_next(message_id)
    assert scene.beta.visits == ["inbox", "ledger", "inbox"]
    assert (await scene.standing(message_id)).response_verified
    first, second = scene.beta.received
    assert (first["id"], first["body_sha256"]) == (second["id"], second["body_sha256"])


async def test_while_the_ledger_cannot_be_asked_the_invoke_stays_here(scene: Scene) -> None:
    message_id = await an_unanswered_invoke(scene, scene.beta.reply())
    scene.beta.in_ledger(message_id, status("503 Busy"), plain(b'{"ok":true,"records":[]}'))
    await scene.until_next(message_id)
    assert scene.beta.visits == ["inbox", "ledger"]
    assert (await scene.standing(message_id)).detail == "peer_ledger_unreachable"
    await scene.until_next(message_id)
    assert scene.beta.visits == ["inbox", "ledger", "ledger", "inbox"]


@pytest.mark.parametrize("shape", ["records", "record"])
async def test_a_run_whose_answer_was_lost_is_found_in_either_shape(scene: Scene, shape: str) -> None:
    spent = scene.beta.reply("error", {"reason": "replay_rejected", "note": "spent"})
    message_id = await an_unanswered_invoke(scene, spent)
    sha256 = scene.beta.received[0]["body_sha256"]
    named = {"msg_id": message_id} if shape == "records" else {"id": message_id}
    record = {**named, "body_sha256": sha256, "verdict": "invoked", "invocation_id": "inv_lost5678"}
    said = {"ok": True, shape: [record] if shape == "records" else record}
    scene.beta.in_ledger(message_id, plain(orjson.dumps(said)))
    await scene.until_next(message_id)
    (told,) = scene.seen
    assert (told.response_kind, told.reason, told.invocation_id) == ("error", "replay_rejected", "inv_lost5678")


async def test_a_query_goes_again_without_asking(scene: Scene) -> None:
    scene.beta.at_inbox(hang_up(), scene.beta.reply())
    message_id = await scene.queue()
    await scene.turn()
    await scene.until_next(message_id)
    assert scene.beta.visits == ["inbox", "inbox"]


@pytest.mark.case("fed:G3", "fed:G4")
async def test_a_worker_that_died_in_the_middle_leaves_a_message_that_may_have_arrived(scene: Scene) -> None:
    hold, arrived = asyncio.Event(), asyncio.Event()

    async def stall(writer: asyncio.StreamWriter, request: Any) -> None:
        arrived.set()
        await hold.wait()
        await scene.beta.reply()(writer, request)

    scene.beta.at_inbox(stall, scene.beta.reply(body={"second": True}))
    message_id = await scene.queue("invoke", body={"key": "UPPER", "args": ""}, capability=TOKEN)
    scene.beta.in_ledger(message_id, status("404 Not Found", b"{}"))
    (first,) = await scene.claimed()
    late = asyncio.create_task(perform(scene.node, first))
    await arrived.wait()
    scene.clock.advance(61)  # silent beyond its lease
    assert await scene.turn() == 1
    taken_over = await scene.standing(message_id)
    assert [(each.detail, each.sent) for each in taken_over.attempts] == [("interrupted", True), ("", True)]
    assert scene.beta.visits == ["inbox", "ledger", "inbox"]
    hold.set()
    await late  # it has an answer now, and nothing to write it with
    assert await scene.standing(message_id) == taken_over
    assert len(scene.seen) == 1


# --- beside the way -----------------------------------------------------------------------------------------------


@pytest.mark.case("oip:W52", "fed:E5")
async def test_the_token_is_nowhere_but_in_what_is_sent(
    scene: Scene, database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    echo = scene.beta.reply("error", {"reason": "no", "note": f"you sent {TOKEN}"})
    scene.beta.at_inbox(hang_up(), status("500 Oops", TOKEN.encode()), echo)
    message_id = await scene.queue("invoke", body={"key": "UPPER", "args": ""}, capability=TOKEN)
    scene.beta.in_ledger(message_id, status("404 Not Found", b"{}"))
    shown = [repr(await scene.standing(message_id))]
    await scene.turn()
    await scene.until_next(message_id)
    tables = ("envelope_message", "envelope_attempt", "jobs_job")
    waiting = [repr(row) for table in tables for row in await scene.rows(f"select * from {table}")]
    scene.clock.advance(HOUR)
    final = await send_message(scene.node, message_id)
    assert final.sent is not None
    assert final.sent["capability"] == f"[capability of {len(TOKEN)} characters]"
    ended = [repr(row) for table in tables for row in await scene.rows(f"select * from {table}")]
    ledger = [
        repr(row) for table in ("ledger_event", "ledger_payload") for row in await scene.rows(f"select * from {table}")
    ]
    told = [repr(each) for each in scene.seen]
    files = list(scene.folder.rglob("deedbox.db*")) if database_url.startswith("sqlite") else []
    raw = [file.read_bytes().decode("latin-1") for file in files]
    out = "".join(capfd.readouterr())
    assert all(each["capability"] == TOKEN for each in scene.beta.received)
    for place in (*shown, *waiting, *ended, *ledger, *told, *raw, repr(final), str(final.response), out):
        assert TOKEN not in place
        assert TOKEN[20:] not in place
    assert final.response_verified, "what is kept is redacted, what was verified was not"


async def test_a_message_is_its_recipient_sender_and_id(scene: Scene) -> None:
    first = await scene.queue(id="msg_12345678")
    assert await scene.queue(id="msg_12345678") == first
    assert await scene.turn() == 1
    with pytest.raises(Refusal, match="message_id_taken"):
        await scene.queue(id="msg_12345678", body={"text": "another"})
    with pytest.raises(Refusal, match="not_our_agent"):
        await scene.queue(sender="node@gamma.test")
    with pytest.raises(Refusal, match="malformed_envelope"):
        await scene.queue(recipient="nobody")
    with pytest.raises(Refusal, match="unknown_message"):
        await send_message(scene.node, "msg_neverheard")
    assert len(await scene.rows("select id from envelope_message")) == 1


async def test_what_is_cancelled_is_not_sent(scene: Scene) -> None:
    message_id = await scene.queue()
    assert await scene.node.database.run(cancel_message, message_id)
    await scene.turn()
    assert scene.beta.received == []
    assert (await scene.standing(message_id)).state == "cancelled"
    assert not await scene.node.database.run(cancel_message, message_id)


async def test_ended_messages_are_forgotten_after_a_month_with_their_attempts(scene: Scene) -> None:
    await scene.queue()
    await scene.turn()
    assert await scene.node.database.run(prune_messages) == 0
    scene.clock.advance(31 * 24 * HOUR)
    assert await scene.node.database.run(prune_messages) == 1
    assert await scene.rows("select id from envelope_attempt") == []


async def test_nobody_but_the_outbox_says_how_a_delivery_ended(scene: Scene) -> None:
    await scene.queue()
    await scene.turn()
    key = make_owner_key(scene.node.kernel.settings.node.keys, scene.node.ids.secret)
    for credential in (OwnerKey(key), None):
        intent = Intent("test", scene.clock.now(), FED_SENT.key, scene.seen[0], Wordless())
        intent.credential = credential or intent.credential
        reply = await scene.node.govern(intent)
        assert (reply.outcome.ok, reply.outcome.code) == (False, "not_allowed")
    assert len(scene.seen) == 1


async def test_what_an_observer_is_told_carries_the_hash_of_the_body(scene: Scene) -> None:
    await scene.queue(body={})
    await scene.turn()
    assert scene.seen[0].body_sha256 == sha256_hex(b"{}")
