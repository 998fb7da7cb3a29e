"""Sealed bodies: opened for who sealed them, answered sealed, and never an oracle (OIP 1.2 §6, §29 W10)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deedbox.canonical import b64url, unb64url
from deedbox.envelope.seal import seal_bytes, sign
from deedbox.identity.agents import rotate
from deedbox.identity.keys import P256Pair
from tests.facets.inbox.conftest import Start
from tests.facets.inbox.scene import ALICE, IDS, MALLORY, NODE, STRANGER, Home, a_home, pair_of, seal, vector

P256_PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
SECRET = "the north wall is thin"


async def test_a_sealed_question_is_opened_and_answered_sealed(home: Home) -> None:
    heard = await home.post(home.sealed_letter(body={"text": SECRET}))
    assert (heard.sealed, heard.kind, heard.verdict) == (True, "result", ("echoed", 200))
    assert (heard.body["echo"], heard.body["encrypted"]) == ({"text": SECRET}, True)
    assert heard.body["sender_verified"] is True
    assert SECRET not in heard.http.body.decode()
    assert home.open(heard.members).bound


async def test_the_block_of_the_vectors_opens(start: Start) -> None:
    """It names nobody inside, as the reference builds it: its text is handed on only where the operator says so."""
    home = await start()
    heard = await home.post(vector("envelope-sealed-query"))
    assert (heard.body["echo"], heard.body["echo_withheld"], heard.sealed) == ({}, True, True)
    trusting = await start("trusting", facets={"inbox": {"echo_unbound": True}})
    heard = await trusting.post(vector("envelope-sealed-query"))
    assert heard.body["echo"] == json.loads(vector("sealed-intermediates")["plaintext_utf8"])


@pytest.mark.case("oip:N4", "oip:W10")
@pytest.mark.parametrize("kind", ["query", "propose", "invoke"])
async def test_a_block_of_somebody_else_is_not_opened(start: Start, kind: str) -> None:
    """Whether or not it says inside for whom: its first sender is the only one, and nothing of it leaves."""
    home = await start(facets={"inbox": {"echo_unbound": True}})
    body = {"text": SECRET, "summary": SECRET, "key": SECRET, "args": SECRET}
    for bound in (True, False):
        original = home.sealed_letter(kind, body, bound=bound)
        await home.post(original)
        stolen = home.letter(kind, None, MALLORY, enc=original["enc"], conversation=f"conv_stolen_{bound}")
        heard = await home.post(stolen)
        assert (heard.kind, heard.reason) == ("error", "decrypt_refused")
        assert heard.verdict == ("decrypt_refused", 400)
        assert SECRET not in json.dumps(heard.body)
        record = await home.record(stolen["id"])
        assert (record["verdict"], record["status"]) == ("decrypt_refused", 400)
        shown = await home.running.get(f"/oip/conversation?id=conv_stolen_{bound}")
        assert SECRET not in shown.body.decode()
    stored = await home.rows("select payload from ledger_payload")
    assert all(SECRET not in bytes(row.payload).decode() for row in stored if b'"actor":"mallory' in bytes(row.payload))


@pytest.mark.case("oip:N4", "oip:W10")
@pytest.mark.case("oip:W10")
async def test_a_block_written_in_another_way_is_the_same_block(home: Home) -> None:
    """Members beside it, and the ephemeral point's mirror image, change its hash and not what opens it."""
    original = home.sealed_letter("invoke", {"key": "ECHO", "args": SECRET}, bound=False)
    await home.post(original)
    enc = original["enc"]
    y = P256_PRIME - int.from_bytes(unb64url(enc["epk"]["y"]), "big")
    mirrored = enc["epk"] | {"y": b64url(y.to_bytes(32, "big"))}
    for other in (enc | {"x": 1}, enc | {"epk": enc["epk"] | {"use": "enc"}}, enc | {"epk": mirrored}):
        heard = await home.post(home.letter("query", None, MALLORY, enc=other))
        assert (heard.reason, SECRET in json.dumps(heard.body)) == ("decrypt_refused", False)


async def test_two_senders_of_one_block_at_once_are_told_apart(start: Start) -> None:
    """In one group the second sees the first's claim on the block, as if it had been committed."""
    home = await start(facets={"inbox": {"echo_unbound": True}})
    for _ in range(4):
        original = home.sealed_letter(body={"text": SECRET}, bound=False)
        stolen = home.letter(sender=MALLORY, enc=original["enc"])
        heard = await asyncio.gather(home.post(original), home.post(stolen))
        reasons = sorted(str(each.reason) for each in heard)
        assert reasons == ["None", "decrypt_refused"]


@pytest.mark.case("oip:W10")
async def test_a_block_that_names_another_message_is_refused(home: Home) -> None:
    """Also when its own sender uses it again: sealed once for one message."""
    original = home.sealed_letter(body={"text": SECRET})
    moved = home.letter(enc=original["enc"])
    assert (await home.post(moved)).reason == "decrypt_refused"
    heard = await home.post(original)
    assert (heard.kind, heard.body["echo"]) == ("result", {"text": SECRET})


async def test_who_is_refused_does_not_become_a_blocks_first_sender(home: Home) -> None:
    """A block caught in flight and sent ahead of its envelope does not lock its sender out."""
    original = home.sealed_letter(body={"text": SECRET})
    ahead = home.letter(sender=MALLORY, enc=original["enc"])
    assert (await home.post(ahead)).reason == "decrypt_refused"
    assert (await home.post(original)).body["echo"] == {"text": SECRET}


@pytest.mark.case("oip:N5", "oip:W10")
async def test_nothing_is_opened_for_the_unproven(home: Home) -> None:
    original = home.sealed_letter(body={"text": SECRET}, bound=False)
    anonymous = home.letter(sender=STRANGER, pair=P256Pair.generate(), enc=original["enc"])
    heard = await home.post(anonymous)
    assert (heard.kind, heard.reason, heard.sealed) == ("error", "sender_unverifiable", False)
    assert SECRET not in heard.http.body.decode()
    assert (await home.post(original)).kind == "result"


async def test_a_block_for_somebody_else_does_not_open(home: Home) -> None:
    enc = seal({"text": SECRET}, to=P256Pair.generate().public)
    for block in (enc, enc | {"alg": "none"}, enc | {"iv": "AA"}, {"alg": enc["alg"]}, "text", [1], 7, True):
        sent = home.letter(enc=block)
        heard = await home.post(sent)
        assert (heard.reason, heard.verdict, heard.sealed) == ("decrypt_failed", ("decrypt_failed", 400), True)
        assert (await home.record(sent["id"]))["verdict"] == "decrypt_failed"


async def test_a_body_beside_its_block_is_no_envelope(home: Home) -> None:
    sent = home.sealed_letter()
    both = sign(sent | {"body": {"text": "x"}}, pair_of(ALICE), ALICE)
    assert (await home.post(both)).members["reason"] == "bad_body"


async def test_a_sealed_text_that_is_no_object_is_not_taken(home: Home) -> None:
    for text in (b"[1]", b'"x"', b"{", b'{"a":1,"a":2}', b"7"):
        enc = seal_bytes(text, home.key, ephemeral=P256Pair.generate(), iv=bytes(12))
        assert (await home.post(home.letter(enc=enc))).reason == "decrypt_failed"


async def test_what_is_sealed_is_in_no_open_document(home: Home) -> None:
    """Threads are open to whoever knows their name; the summary of a sealed proposal is not theirs to read."""
    sent = home.sealed_letter("propose", {"summary": SECRET, "text": SECRET})
    await home.post(sent)
    thread = await home.thread()
    assert thread["state"] == "proposed"
    assert thread["open_commitments"] == [{"msg_id": sent["id"], "from": ALICE, "summary": ""}]
    for page in ("/oip/conversation?id=conv_test", f"/oip/ledger?msg={sent['id']}", "/oip/ledger", "/oip/conversation"):
        assert SECRET not in (await home.running.get(page)).body.decode()


async def test_a_sealed_refusal_is_sealed_too(home: Home) -> None:
    heard = await home.post(home.sealed_letter("invoke", {"key": "NOW", "args": ""}))
    assert (heard.sealed, heard.reason) == (True, "capability_required")
    assert "capability_required" not in heard.http.body.decode()


async def test_a_repeat_of_a_sealed_message_is_a_repeat(home: Home) -> None:
    sent = home.sealed_letter(body={"text": SECRET})
    first = await home.post(sent)
    heard = await home.post(sent)
    assert (heard.sealed, heard.reason) == (True, "replay_rejected")
    assert heard.body["original"]["response_id"] == first.members["id"]


async def test_a_block_is_remembered_for_its_envelopes_life_and_a_day(home: Home) -> None:
    original = home.sealed_letter(body={"text": SECRET}, bound=False, life=900_000)
    await home.post(original)
    home.clock.advance(86_400 + 800)
    await home.job("inbox_prune")
    assert (await home.post(home.letter(sender=MALLORY, enc=original["enc"]))).reason == "decrypt_refused"
    home.clock.advance(200)
    await home.job("inbox_prune")
    assert await home.rows("select sha256 from inbox_block") == []


@pytest.mark.case("fed:B5")
async def test_every_key_of_ours_that_is_valid_opens(tmp_path: Path) -> None:
    """A peer that has not yet read of our new key seals to the old one, and one that has to the new."""
    async with a_home(tmp_path / "home") as home:
        old, clock, kernel = home.key, home.clock, home.running.kernel
        clock.advance(1)
        await kernel.database.run(rotate, NODE, kernel.settings.node.keys, kernel.ids.secret, 7_200_000)
    async with a_home(tmp_path / "home", clock=clock) as home:
        assert home.key != old
        for key in (old, home.key):
            message_id = IDS.new("msg")
            enc = seal({"text": SECRET}, to=key, sender=ALICE, recipient=NODE, id=message_id)
            heard = await home.post(home.letter(enc=enc, id=message_id))
            assert heard.body["echo"] == {"text": SECRET}
        clock.advance(7_200)
        enc = seal({"text": SECRET}, to=old)
        assert (await home.post(home.letter(enc=enc))).reason == "decrypt_failed"
