"""A message is taken once: repeats, forgeries, lost answers, what is kept how long (OIP 1.2 §9, decision 31)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox import Inbox as InboxPort
from deedbox import Refusal
from deedbox.canonical import b64url, unb64url
from deedbox.envelope.message import Envelope
from deedbox.envelope.seal import verify
from deedbox.govern.claims import prune
from deedbox.identity.keys import P256Pair
from tests import postgres
from tests.facets.inbox.conftest import Start
from tests.facets.inbox.scene import ALICE, MALLORY, NODE, STRANGER, Home, a_home, pair_of, resigned

HOUR = 3600


@pytest.mark.case("oip:F6", "fed:C1", "oip:W3", "oip:N2")
async def test_of_many_copies_at_once_one_is_answered(home: Home) -> None:
    sent = home.letter(body={"text": "once"})
    heard = await asyncio.gather(*(home.post(sent) for _ in range(8)))
    answered = [each for each in heard if each.kind == "result"]
    refused = [each for each in heard if each.kind == "error"]
    assert (len(answered), {each.reason for each in refused}) == (1, {"replay_rejected"})
    assert {each.verdict for each in refused} == {("replay_rejected", 409)}
    original = {"response_id": answered[0].members["id"], "invocation_id": None}
    assert all(each.body["original"] == original for each in refused)


@pytest.mark.case("oip:F6")
async def test_the_ledger_shows_repeats_after_what_they_repeat(home: Home) -> None:
    sent = home.letter()
    first = await home.post(sent)
    for _ in range(6):
        assert (await home.post(sent)).reason == "replay_rejected"
    records = await home.records(sent["id"])
    assert (records[0]["verdict"], records[0]["response_id"]) == ("echoed", first.members["id"])
    assert [(each["verdict"], each["status"]) for each in records[1:]] == [("replay_rejected", 409)] * 4
    assert len((await home.thread())["messages"]) == 2


async def test_another_message_under_a_spent_id_is_a_repeat_without_an_original(home: Home) -> None:
    sent = home.letter(body={"text": "a"})
    await home.post(sent)
    for other in (
        resigned(sent, body={"text": "b"}),
        resigned(sent, conversation="conv_other"),
        resigned(sent, kind="event"),
        resigned(sent, capability="sh.x"),
    ):
        heard = await home.post(other)
        assert heard.reason == "replay_rejected"
        assert "original" not in heard.body


async def test_a_renewal_is_the_same_message(home: Home) -> None:
    """New times and a new signature under the same id (decision 30)."""
    sent = home.letter(body={"text": "a"})
    first = await home.post(sent)
    home.clock.advance(200)
    renewal = home.letter(body={"text": "a"}, id=sent["id"])
    assert renewal["signature"] != sent["signature"]
    heard = await home.post(renewal)
    assert (heard.reason, heard.body["original"]["response_id"]) == ("replay_rejected", first.members["id"])


@pytest.mark.case("fed:B1")
async def test_a_signature_in_its_other_form_is_the_same_message(home: Home) -> None:
    sent = home.letter()
    assert (await home.post(sent)).kind == "result"
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    raw = unb64url(sent["signature"]["value"])
    flipped = raw[:32] + (order - int.from_bytes(raw[32:], "big")).to_bytes(32, "big")
    other = sent | {"signature": sent["signature"] | {"value": b64url(flipped)}}
    assert (await home.post(other)).reason == "replay_rejected"


@pytest.mark.case("oip:W7", "fed:C5")
async def test_an_id_is_spent_for_its_sender_and_recipient_only(start: Start) -> None:
    home = await start(agents=("node", "clerk"))
    sent = home.letter()
    assert (await home.post(sent)).kind == "result"
    assert (await home.post(home.letter(sender=MALLORY, id=sent["id"]))).kind == "result"
    unproven = home.letter(sender=STRANGER, pair=P256Pair.generate(), id=sent["id"])
    assert (await home.post(unproven)).kind == "result"
    to_clerk = home.letter(recipient="clerk@home.example", id=sent["id"])
    assert (await home.running.post("/oip/inbox", to_clerk)).json()["kind"] == "result"
    for spent in (sent, unproven):
        assert (await home.post(spent)).reason == "replay_rejected"


async def test_the_unproven_spend_ids_in_a_space_of_their_own(home: Home) -> None:
    """Whoever claims a name while its domain is away takes nothing from its owner."""
    keys = home.book.records.pop(ALICE)
    impostor = home.letter(body={"text": "me?"}, pair=P256Pair.generate())
    assert (await home.post(impostor)).body["sender_verified"] is False
    home.book.records[ALICE] = keys
    genuine = home.letter(body={"text": "me!"}, id=impostor["id"])
    heard = await home.post(genuine)
    assert (heard.kind, heard.body["sender_verified"], heard.body["echo"]) == ("result", True, {"text": "me!"})


@pytest.mark.case("fed:C4")
async def test_a_forgery_spends_nothing(home: Home) -> None:
    genuine = home.letter(body={"text": "mine"})
    for forged in (
        home.letter(body={"text": "not mine"}, id=genuine["id"], pair=pair_of(MALLORY)),
        genuine | {"body": {"text": "changed"}},
        home.letter(id=genuine["id"], now=home.clock.now() - 600_000),
    ):
        assert (await home.post(forged)).kind == "error"
    assert (await home.post(genuine)).kind == "result"


@pytest.mark.case("oip:N3", "oip:W4", "fed:C5")
async def test_what_is_forgotten_is_refused_by_time(home: Home) -> None:
    """Eviction is by our own clock, and never opens what expiry has closed."""
    sent = home.letter(life=900_000)
    await home.post(sent)
    future = home.letter(now=home.clock.now() + 10 * 365 * 24 * HOUR * 1000)
    assert (await home.post(future)).members["reason"] == "created_in_future"
    home.clock.advance(600)
    assert (await home.post(sent)).reason == "replay_rejected"
    home.clock.advance(24 * HOUR)
    await home.running.kernel.database.run(prune)
    assert await home.rows("select key from govern_claim") == []
    assert (await home.post(sent)).reason == "expired_envelope"


async def test_a_mailed_id_is_kept_as_long_as_its_envelope_lives(home: Home) -> None:
    """By mail an envelope may live a week; the carrier says that it came by mail (decision 30)."""
    port = home.running.node.port(InboxPort)  # type: ignore[type-abstract]
    week = 7 * 24 * HOUR * 1000
    sent = home.letter(life=week, max_life=week)
    assert (await home.post(sent)).members["reason"] == "ttl_too_long"
    reply = await port.accept(orjson.dumps(sent), carrier="email", address="mail")
    assert reply.outcome.ok
    home.running.node.given(reply)
    home.clock.advance(6.9 * 24 * HOUR)
    await home.running.kernel.database.run(prune)
    reply = await port.accept(orjson.dumps(sent), carrier="email", address="mail")
    assert reply.outcome.code == "replay_rejected"


@pytest.mark.case("fed:C6")
async def test_no_number_of_newer_messages_lets_a_repeat_pass(home: Home) -> None:
    sent = home.letter()
    await home.post(sent)
    port = home.running.node.port(InboxPort)  # type: ignore[type-abstract]
    many = [orjson.dumps(home.letter(conversation=f"conv_{n}")) for n in range(600)]
    for reply in await asyncio.gather(*(port.accept(raw, carrier="https", address="many") for raw in many)):
        assert reply.outcome.ok
    assert (await home.post(sent)).reason == "replay_rejected"


# --- answers that were lost --------------------------------------------------------------------------------------


async def lost(home: Home, sent: dict[str, Any]) -> None:
    """Post a message and hang up before its answer."""
    home.book.gate = asyncio.Event()
    body = orjson.dumps(sent)
    _, writer = await asyncio.open_connection("127.0.0.1", home.running.port)
    writer.write(b"POST /oip/inbox HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
    while not home.book.resolved:  # noqa: ASYNC110  # the book counts who was asked for
        await asyncio.sleep(0.005)
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.05)
    home.book.gate.set()
    home.book.gate = None
    while not await home.rows("select key from govern_claim where undelivered"):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def test_an_answer_nobody_had_is_given_to_the_repeat_and_once(home: Home) -> None:
    sent = home.letter(body={"text": "hello?"})
    await lost(home, sent)
    heard = await home.post(sent)
    assert (heard.kind, heard.body["echo"]) == ("result", {"text": "hello?"})
    assert heard.verdict == ("redelivered", 200)
    assert heard.members["id"] == (await home.record(sent["id"]))["response_id"]
    again = await home.post(sent)
    assert (again.reason, again.body["original"]["response_id"]) == ("replay_rejected", heard.members["id"])


async def test_an_answer_given_late_is_renewed_under_its_own_id(home: Home) -> None:
    sent = home.letter(life=900_000)
    await lost(home, sent)
    home.clock.advance(600)
    heard = await home.post(sent)
    record = await home.record(sent["id"])
    assert heard.members["created_at"] == "2026-01-02T03:14:05.678Z"
    assert (heard.members["id"], heard.members["body_sha256"]) == (
        record["response_id"],
        record["response_body_sha256"],
    )
    assert heard.body["answered_at"] == "2026-01-02T03:04:05.678Z"


async def test_a_lost_answer_is_not_for_another_message_under_its_id(home: Home) -> None:
    sent = home.letter(body={"text": "secret"})
    await lost(home, sent)
    assert (await home.post(resigned(sent, body={"text": "what was it?"}))).reason == "replay_rejected"
    assert (await home.post(sent)).body["echo"] == {"text": "secret"}


@pytest.mark.case("oip:W3")
async def test_after_a_restart_the_repeat_has_the_answer_that_never_left(tmp_path: Path) -> None:
    async with a_home(tmp_path / "home") as home:
        sent = home.letter(body={"text": "are you there?"})
        port = home.running.node.port(InboxPort)  # type: ignore[type-abstract]
        reply = await port.accept(orjson.dumps(sent), carrier="https", address="a")
        assert reply.outcome.ok
        assert (await home.post(sent)).reason == "replay_rejected", "its process lives and may still give it"
        given = home.letter(body={"text": "and this one?"})
        await home.post(given)
        clock = home.clock
    async with a_home(tmp_path / "home", clock=clock) as home:
        heard = await home.post(sent)
        assert (heard.kind, heard.body["echo"]) == ("result", {"text": "are you there?"})
        assert (await home.post(sent)).reason == "replay_rejected"
        assert (await home.post(given)).reason == "replay_rejected"


async def test_a_carrier_can_have_the_reply_signed(home: Home) -> None:
    """What a mail carrier does with the port: the same answer, whoever carries it."""
    port = home.running.node.port(InboxPort)  # type: ignore[type-abstract]
    sent = home.letter()
    reply = await port.accept(orjson.dumps(sent), carrier="email", address="mail")
    answer = Envelope.parse(orjson.loads(port.answer(reply)), now=home.clock.now())
    verify(answer, home.key, now=home.clock.now())
    assert (answer.in_reply_to, answer.sender) == (sent["id"], NODE)
    home.running.node.given(reply)
    refused = await port.accept(b"{", carrier="email", address="mail")
    assert (refused.answer, refused.refusal and refused.refusal.code) == (b"", "invalid_json")


# --- several processes -------------------------------------------------------------------------------------------


@pytest.mark.case("fed:C3")
async def test_an_embedded_store_has_one_process(tmp_path: Path) -> None:
    """Two processes behind one address could each accept a message, so the second does not start."""
    async with a_home(tmp_path / "home"):
        with pytest.raises(Refusal, match="database_in_use"):
            async with a_home(tmp_path / "home"):
                pass


@pytest.mark.skipif(postgres.VARIABLE not in os.environ, reason=f"{postgres.VARIABLE} names no PostgreSQL")
@pytest.mark.case("fed:C3")
@pytest.mark.engines
async def test_of_two_processes_on_one_database_one_accepts(tmp_path: Path) -> None:
    with postgres.scratch(os.environ[postgres.VARIABLE]) as url:
        section = {"database": url}
        async with a_home(tmp_path / "one", node=section, verified=False) as one:
            section["keys"] = str(tmp_path / "one" / "keys")
            async with a_home(tmp_path / "two", node=section, clock=one.clock, verified=False) as two:
                for _ in range(5):
                    sent = one.letter()
                    heard = await asyncio.gather(one.post(sent), two.post(sent), one.post(sent), two.post(sent))
                    assert sorted(each.kind for each in heard) == ["error", "error", "error", "result"]
