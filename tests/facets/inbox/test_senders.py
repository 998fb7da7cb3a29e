"""Who is believed: key rotation, doubtful keys, floods of forgeries, what a domain may spend (OIP 1.2 §7, §8.7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deedbox.envelope.seal import open_body, sign
from deedbox.identity.keys import P256Pair
from tests.facets.inbox.conftest import Start
from tests.facets.inbox.scene import ALICE, MALLORY, STRANGER, Home, pair_of, record

NEW = P256Pair.generate()
TIGHT: dict[str, Any] = {"inbox": {"rate": "5/min", "unverified": "2/min"}, "shield": {"address": "99999/min"}}


# --- keys --------------------------------------------------------------------------------------------------------


@pytest.mark.case("fed:B5", "oip:W13")
async def test_a_key_that_is_still_valid_speaks_beside_the_newest(home: Home) -> None:
    old, now = pair_of(ALICE), home.clock.now()
    home.book.publish(ALICE, NEW, keys={"k1": (NEW.public, now - 5, None), "k0": (old.public, None, now + 60_000)})
    assert (await home.say(pair=NEW)).kind == "result"
    assert (await home.say(pair=old)).kind == "result"
    assert (await home.post(sign(home.draft(), old, "k0"))).kind == "result"
    assert home.book.refreshed == 0
    home.clock.advance(60)
    assert (await home.say(pair=old)).reason == "bad_signature"
    assert (await home.post(sign(home.draft(), old, "k0"))).reason == "key_not_of_sender"


@pytest.mark.case("fed:B5", "oip:W13")
async def test_a_key_we_have_not_heard_of_is_asked_for_once(home: Home) -> None:
    home.book.after_refresh[ALICE] = record(ALICE, NEW, keys={"k1": (NEW.public, None, None)})
    heard = await home.say(pair=NEW)
    assert (heard.kind, heard.body["sender_verified"], home.book.refreshed) == ("result", True, 1)
    assert (await home.post(sign(home.draft(), NEW, "k1"))).kind == "result"
    assert (await home.say(pair=P256Pair.generate())).reason == "bad_signature"


async def test_a_sealed_answer_is_for_the_key_that_was_proven(home: Home) -> None:
    home.book.after_refresh[ALICE] = record(ALICE, NEW)
    sent = home.sealed_letter(body={"text": "x"}, pair=NEW)
    answer = await home.running.post("/oip/inbox", sent)
    reply = answer.json()
    opened = open_body(reply["enc"], NEW, sender=reply["from"], recipient=ALICE, message_id=reply["id"])
    assert opened.body["echo"] == {"text": "x"}


@pytest.mark.case("oip:W14", "fed:F9")
@pytest.mark.parametrize("doubt", ["stale_document", "key_changed"])
async def test_a_key_in_doubt_serves_questions_only(home: Home, doubt: str) -> None:
    home.book.publish(ALICE, pair_of(ALICE), fresh=False, doubt=doubt)
    heard = await home.say(body={"text": "x"})
    assert (heard.kind, heard.body["echo"]) == ("result", {"text": "x"})
    for kind in ("invoke", "propose", "result", "event", "cancel", "error"):
        heard = await home.say(kind, {"text": "x"})
        assert (heard.reason, heard.body["resolve_failure"]) == ("sender_unverifiable", doubt)
    assert (await home.say(pair=NEW)).reason == "bad_signature"


@pytest.mark.case("oip:W14")
async def test_a_key_that_a_refresh_brings_is_doubted_too(home: Home) -> None:
    home.book.after_refresh[ALICE] = record(ALICE, NEW, fresh=False, doubt="key_changed")
    heard = await home.say("event", {"text": "x"}, pair=NEW)
    assert (heard.reason, heard.body["resolve_failure"]) == ("sender_unverifiable", "key_changed")
    assert (await home.say(pair=NEW)).kind == "result"


async def test_a_published_sender_is_never_taken_for_an_unpublished_one(home: Home) -> None:
    heard = await home.say(body={"text": "x"}, pair=P256Pair.generate())
    assert (heard.kind, heard.reason) == ("error", "bad_signature")
    unsigned = home.draft(body={"text": "x"})
    assert (await home.post(unsigned)).reason == "missing_signature"


# --- floods ------------------------------------------------------------------------------------------------------


@pytest.mark.case("fed:B6", "oip:W48")
async def test_forgeries_in_one_name_stop_being_looked_at_and_hurt_nobody_else(start: Start) -> None:
    """After so many failures in a name from an address the signature is not checked and nothing is fetched."""
    home = await start(limits={"shield": {"address": "99999/min", "failures": "20/min"}})
    for _ in range(2):
        forged = [home.letter(pair=pair_of(MALLORY)) for _ in range(25)]
        heard = await asyncio.gather(*(home.post(each) for each in forged))
    assert {each.status for each in heard} == {429}
    assert home.book.refreshed <= 20
    assert (await home.say(sender=MALLORY)).kind == "result"
    blocked = await home.say()
    assert (blocked.status, blocked.http.headers["retry-after"]) == (429, "60")
    home.clock.advance(60)
    assert (await home.say()).kind == "result"


@pytest.mark.case("fed:B6")
async def test_a_flood_of_forgeries_writes_little(home: Home) -> None:
    """At most thirty refusals a minute of an address are written down; the rest is counted (decision 32)."""
    forged = [home.letter(pair=pair_of(MALLORY)) for _ in range(80)]
    heard = await asyncio.gather(*(home.post(each) for each in forged))
    assert sum("receipt" in each.members for each in heard) == 30
    assert len(await home.rows("select id from inbox_exchange")) == 30
    assert (await home.say()).kind == "result"


# --- quotas ------------------------------------------------------------------------------------------------------


@pytest.mark.case("oip:W48")
async def test_each_domain_spends_its_own_allowance(start: Start) -> None:
    home = await start(limits=TIGHT)
    for sender in (ALICE, MALLORY, ALICE, MALLORY, ALICE):
        assert (await home.say(sender=sender)).kind == "result"
    sent = home.letter(sender=MALLORY)
    heard = await home.post(sent)
    assert (heard.status, heard.members["error"]) == (429, "rate_limited")
    assert (heard.http.headers["retry-after"], "signature" in heard.members) == ("12", False)
    assert await home.records(sent["id"]) == []
    assert await home.rows("select key from govern_claim where key like :like", like=f"%{sent['id']}%") == []
    other = "bob@other.example"
    home.book.publish(other, NEW)
    assert (await home.say(sender=other, pair=NEW)).kind == "result"
    home.clock.advance(12)
    assert (await home.post(sent)).kind == "result"


@pytest.mark.case("oip:W48")
async def test_only_the_proven_spend_a_domains_allowance(start: Start) -> None:
    home = await start(limits=TIGHT)
    for _ in range(10):
        assert (await home.say(pair=pair_of(MALLORY))).reason == "bad_signature"
    for _ in range(5):
        assert (await home.say()).kind == "result"
    assert (await home.say()).status == 429


@pytest.mark.case("oip:W6", "oip:W60")
async def test_the_unproven_have_a_smaller_allowance_of_their_own(start: Start) -> None:
    home = await start(limits=TIGHT)
    unknown = "carol@peer.example"
    for _ in range(2):
        assert (await home.say(sender=unknown, pair=NEW)).kind == "result"
    heard = await home.say(sender=unknown, pair=NEW)
    assert (heard.status, heard.http.headers["retry-after"]) == (429, "30")
    assert (await home.say(sender=STRANGER, pair=NEW)).kind == "result"
    assert (await home.say(sender=ALICE)).kind == "result"


async def test_repeats_are_charged_for(start: Start) -> None:
    home = await start(limits=TIGHT)
    sent = home.letter()
    told = [await home.post(sent) for _ in range(6)]
    assert [each.status for each in told] == [200] * 5 + [429]
