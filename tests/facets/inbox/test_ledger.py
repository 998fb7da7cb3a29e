"""The federation ledger: both shapes, what is found by an id and what a listing tells, and the sealed index (§10)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deedbox.govern.claims import prune
from deedbox.identity.keys import P256Pair
from deedbox_inbox import index
from tests.facets.inbox.conftest import Start
from tests.facets.inbox.scene import ALICE, MALLORY, NODE, STRANGER, Home, pair_of, vector

DAY = 86_400


# --- shapes ------------------------------------------------------------------------------------------------------


async def test_both_shapes_are_served_at_once(start: Start) -> None:
    """A joiner reads ``records[0]`` or ``record``, and joins on the message id and the hash."""
    home = await start(node={"zone": "America/Los_Angeles"})
    sent = home.letter(body={"text": "x"})
    heard = await home.post(sent)
    answer = (await home.running.get(f"/oip/ledger?msg={sent['id']}")).json()
    ours, peers = vector("ledger"), vector("ledger-peer")
    assert set(ours) <= set(answer)
    assert set(ours["records"][0]) <= set(answer["records"][0])
    assert set(peers["record"]) <= set(answer["record"])
    assert (answer["ok"], answer["node"], answer["msg"]) == (True, "home.example", sent["id"])
    record, peer = answer["records"][0], answer["record"]
    assert (record["ts"], peer["ts"]) == ("2026-01-01T19:04:05-08:00", "2026-01-02T03:04:05.678Z")
    assert (record["kind"], record["msg_kind"], peer["kind"]) == ("FED_INBOX", "query", "query")
    assert (record["msg_id"], peer["id"]) == (sent["id"], sent["id"])
    assert record["body_sha256"] == peer["body_sha256"] == sent["body_sha256"]
    assert record["response_id"] == peer["response_id"] == heard.members["id"]
    assert record["response_body_sha256"] == peer["response_body_sha256"] == heard.members["body_sha256"]
    assert (record["direction"], record["status"], record["response_kind"]) == ("inbound", 200, "result")


async def test_an_unknown_message_is_not_found(home: Home) -> None:
    for name in ("msg_unknown_one", "nothing", "a%00b", "%27%20or%201=1"):
        answer = await home.running.get(f"/oip/ledger?msg={name}")
        told = answer.json()
        assert (answer.status, told["ok"], told["error"], told["records"]) == (404, False, "not_found", [])
    assert (await home.running.get(f"/oip/ledger?msg={'x' * 201}")).status == 400


@pytest.mark.case("oip:W42")
async def test_the_listing_names_domains_to_strangers_and_agents_to_the_owner(home: Home) -> None:
    for number in range(3):
        await home.say(body={"n": number})
    told = (await home.running.get("/oip/ledger?limit=2")).json()
    assert (told["ok"], told["node"], told["count"], len(told["records"])) == (True, "home.example", 2, 2)
    assert {(each["from"], each["to"]) for each in told["records"]} == {("peer.example", "home.example")}
    owner = (await home.running.as_owner("GET", "/oip/ledger")).json()
    assert owner["count"] == 3
    assert {(each["from"], each["to"]) for each in owner["records"]} == {(ALICE, NODE)}


async def test_a_listing_is_brought_within_bounds(home: Home) -> None:
    await asyncio.gather(*(home.say(body={"n": number}) for number in range(30)))
    for limit, count in (("0", 1), ("7", 7), ("100", 30), ("5000", 30), ("", 25)):
        told = (await home.running.get(f"/oip/ledger?limit={limit}" if limit else "/oip/ledger")).json()
        assert told["count"] == count, limit
    assert (await home.running.get("/oip/ledger?limit=many")).status == 400
    assert (await home.running.get("/oip/conversation?limit=-1")).status == 400


async def test_neither_body_nor_token_is_shown(home: Home) -> None:
    token = vector("envelope-invoke")["capability"]
    sent = home.letter("invoke", {"key": "NOW", "args": "private words"}, capability=token)
    await home.post(sent)
    for page in (f"/oip/ledger?msg={sent['id']}", "/oip/ledger", "/oip/conversation?id=conv_test"):
        shown = (await home.running.get(page)).body.decode()
        assert token not in shown
        assert "private words" not in shown


async def test_a_wrong_owner_key_opens_nothing(home: Home) -> None:
    answer = await home.running.get("/oip/ledger", x_terminal_key="ok_wrong")
    assert (answer.status, answer.json()["error"]) == (401, "unauthorized")


async def test_what_others_say_of_an_id_does_not_stand_before_its_message(home: Home) -> None:
    """Forgeries and strangers under the id are shown after what was taken, and do not crowd it out."""
    sent = home.letter()
    await home.post(sent)
    for _ in range(7):
        await home.post(home.letter(id=sent["id"], pair=pair_of(MALLORY)))
    records = await home.records(sent["id"])
    assert (records[0]["verdict"], records[0]["body_sha256"]) == ("echoed", sent["body_sha256"])
    assert [each["verdict"] for each in records[1:]] == ["rejected:bad_signature"] * 4


async def test_reading_is_receipted(home: Home) -> None:
    answer = await home.running.get("/oip/ledger")
    assert answer.headers["deedbox-receipt"].startswith("event:")


# --- the sealed index --------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SPAN", 8)


async def forget_claims(home: Home) -> None:
    await home.running.kernel.database.run(prune)
    assert await home.rows("select key from govern_claim") == []


async def spans(home: Home) -> list[Any]:
    return await home.rows("select first, last, begins, ends, pairs from inbox_span order by first")


@pytest.mark.usefixtures("small")
async def test_old_messages_are_found_when_their_claims_are_gone(home: Home) -> None:
    sent = [home.letter(body={"n": number}, conversation=f"conv_{number % 3}") for number in range(20)]
    for envelope in sent:
        home.clock.advance(1)
        assert (await home.post(envelope)).kind == "result"
    await home.job("inbox_index")
    assert [(row.first, row.last) for row in await spans(home)] == [(1, 8), (9, 16)]
    home.clock.advance(DAY + 1)
    await home.job("inbox_index")
    found = await spans(home)
    assert [(row.first, row.last, len(row.pairs)) for row in found] == [(1, 8, 128), (9, 16, 128), (17, 20, 64)]
    assert found[0].begins < found[0].ends < found[1].begins
    await forget_claims(home)
    for envelope in sent:
        record = await home.record(envelope["id"])
        assert (record["msg_id"], record["body_sha256"]) == (envelope["id"], envelope["body_sha256"])
    assert await home.records("msg_never_seen_here") == []


async def test_an_exchange_is_indexed_before_its_claim_is_gone(home: Home) -> None:
    """No message is out of sight between the pruning of its claim and the writing of its span."""
    sent = home.letter()
    await home.post(sent)
    await home.job("inbox_index")
    assert await spans(home) == []
    home.clock.advance(DAY - 3_599)
    await home.job("inbox_index")
    assert [(row.first, row.last) for row in await spans(home)] == [(1, 1)]
    assert await home.rows("select key from govern_claim") != []
    assert await home.record(sent["id"])


@pytest.mark.usefixtures("small")
async def test_refusals_are_found_by_the_index_too_and_hide_nothing(home: Home) -> None:
    sent = home.letter()
    await home.post(sent)
    await home.say(sender=STRANGER, pair=P256Pair.generate())
    home.clock.advance(DAY + 1)
    await home.job("inbox_index")
    await forget_claims(home)
    forged = home.letter(id=sent["id"], pair=pair_of(MALLORY))
    await home.post(forged)
    unproven = home.letter(sender=STRANGER, pair=P256Pair.generate(), id=sent["id"])
    assert (await home.post(unproven)).kind == "result"
    told = [(each["from"], each["verdict"]) for each in await home.records(sent["id"])]
    assert told == [(STRANGER, "echoed"), (ALICE, "echoed"), (ALICE, "rejected:bad_signature")]


@pytest.mark.usefixtures("small")
async def test_places_of_indexed_exchanges_are_forgotten(home: Home) -> None:
    for _ in range(10):
        await home.say(pair=pair_of(MALLORY))
    assert len(await home.rows("select exchange from inbox_recent")) == 10
    await home.job("inbox_index")
    await home.job("inbox_prune")
    assert [row.exchange for row in await home.rows("select exchange from inbox_recent order by 1")] == [9, 10]
    (first,) = await home.rows("select msg_id from inbox_exchange where id = 1")
    assert (await home.record(first.msg_id))["verdict"] == "rejected:bad_signature"


@pytest.mark.usefixtures("small")
async def test_two_workers_write_a_span_once(home: Home) -> None:
    for _ in range(16):
        await home.say()
    await asyncio.gather(*(home.job("inbox_index") for _ in range(3)))
    assert [(row.first, row.last) for row in await spans(home)] == [(1, 8), (9, 16)]


async def test_pruning_goes_a_few_hundred_rows_a_group(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "PRUNED_AT_ONCE", 4)
    for number in range(10):
        await home.say(conversation=f"conv_{number}")
    home.clock.advance(31 * DAY)
    database = home.running.kernel.database
    assert [await database.run(index.pruned) for _ in range(4)] == [4, 4, 2, 0]


def test_a_prefix_is_found_wherever_it_stands() -> None:
    """Binary search over sorted pairs, first, last, among equals and between."""
    pairs = sorted(bytes([value]) * 8 + number.to_bytes(8, "big") for number, value in enumerate((1, 3, 3, 3, 7)))
    for value, numbers in ((1, [0]), (3, [1, 2, 3]), (7, [4]), (0, []), (2, []), (9, [])):
        assert list(index._matching(b"".join(pairs), bytes([value]) * 8)) == numbers
    assert list(index._matching(b"", bytes(8))) == []
