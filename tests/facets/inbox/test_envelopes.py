"""Every envelope of the vectors at a real node: kind, reason, virtual status and ledger verdict (OIP 1.2 §4 to §8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deedbox.canonical import canonical
from deedbox.envelope.seal import sign
from deedbox.identity.keys import P256Pair
from tests.facets.inbox.conftest import Start
from tests.facets.inbox.scene import ALICE, MALLORY, NODE, STRANGER, Home, pair_of, phonebook, resigned, vector

FROM_ALICE = {
    "query": ("result", None, "echoed", 200),
    "invoke": ("error", "capability_invalid", "denied:capability_invalid", 401),
    "decision": ("event", None, "acknowledged", 200),
    "cancel": ("event", None, "acknowledged", 200),
    "sealed-query": ("result", None, "echoed", 200),
}
FROM_NODE = {
    "propose": ("event", None, "acknowledged", 200),
    "result-query": ("event", None, "acknowledged", 200),
    "result-invoke": ("event", None, "acknowledged", 200),
    "error": ("event", None, "acknowledged", 200),
}
NEGATIVE = vector("envelope-negative")["cases"]
DIFFERENT = {"unparseable expiry": "bad_times", "signature.kid is not checked upstream": "key_not_of_sender"}
"""Where this node is stricter than the reference, by OIP 1.2 §4.3 and §5.1."""


@pytest.mark.parametrize("name", FROM_ALICE)
async def test_a_vector_to_the_home_is_answered_as_specified(home: Home, name: str) -> None:
    kind, reason, verdict, status = FROM_ALICE[name]
    sent = vector(f"envelope-{name}")
    heard = await home.post(sent)
    assert (heard.kind, heard.reason, heard.verdict) == (kind, reason, (verdict, status))
    record = await home.record(sent["id"])
    assert (record["verdict"], record["status"], record["reason"]) == (verdict, status, reason)
    assert (record["msg_kind"], record["from"], record["to"]) == (sent["kind"], ALICE, NODE)
    assert record["body_sha256"] == sent["body_sha256"]
    assert record["response_body_sha256"] == heard.members["body_sha256"]


@pytest.mark.parametrize("name", FROM_NODE)
async def test_a_vector_from_the_home_is_answered_by_its_peer(start: Start, name: str) -> None:
    peer = await start(domain="peer.example", agents=("alice", "mallory"), book=phonebook("wellknown"))
    kind, reason, verdict, status = FROM_NODE[name]
    sent = vector(f"envelope-{name}")
    answer = await peer.running.post("/oip/inbox", sent)
    members = answer.json()
    assert (answer.status, members["kind"], members["body"].get("reason")) == (200, kind, reason)
    assert members["from"] == sent["to"]
    assert (answer.headers["oip-verdict"], int(answer.headers["oip-status"])) == (verdict, status)
    assert (await peer.record(sent["id"]))["verdict"] == verdict


def rebuilt(case: dict[str, Any]) -> dict[str, Any]:
    """The envelope of a case, its long member made as the case says."""
    envelope = json.loads(json.dumps(case["envelope"]))
    if "expand" in case:
        envelope["body"]["text"] = case["expand"]["repeat"] * case["expand"]["count"]
    return dict(envelope)


@pytest.mark.parametrize("case", NEGATIVE, ids=lambda case: case["name"])
async def test_a_faulty_vector_gets_its_reason(home: Home, case: dict[str, Any]) -> None:
    expected = DIFFERENT.get(case["name"], case["expect"])
    envelope = rebuilt(case)
    heard = await home.post(envelope)
    if case["stage"] == "shape" or expected == "bad_times":
        assert (heard.status, heard.members["error"]) == (400, "malformed_envelope")
        assert heard.members["reason"] == expected
        assert await home.records(str(envelope["id"])) == []
        return
    if expected == "verified":
        assert (heard.kind, heard.verdict) == ("result", ("echoed", 200))
        return
    assert (heard.kind, heard.reason) == ("error", expected)
    assert heard.verdict == (f"rejected:{expected}", 401)
    record = await home.record(envelope["id"])
    assert (record["verdict"], record["status"], record["sender_verified"]) == (f"rejected:{expected}", 401, False)


# --- shape -------------------------------------------------------------------------------------------------------


SHAPES: list[tuple[dict[str, Any], str]] = [
    ({"protocol": "oip-message/2", "id": "x"}, "wrong_protocol"),
    ({"id": "x", "kind": "x"}, "bad_id"),
    ({"id": None}, "bad_id"),
    ({"id": ""}, "bad_id"),
    ({"kind": "x", "from": "x"}, "bad_kind"),
    ({"from": "x", "to": "x"}, "bad_from"),
    ({"to": "x", "created_at": ""}, "bad_to"),
    ({"created_at": "", "body_sha256": 1}, "missing_times"),
    ({"expires_at": None}, "missing_times"),
    ({"body_sha256": 1, "body": {"x": "x" * 65_536}}, "missing_body_hash"),
    ({"body": {"x": "x" * 65_536}, "created_at": "never"}, "body_too_large"),
    ({"created_at": "never"}, "bad_times"),
    ({"expires_at": "2026-01-02T03:19:10.679Z"}, "ttl_too_long"),
    ({"created_at": "2026-01-02T03:06:05.679Z", "expires_at": "2026-01-02T03:09:00.000Z"}, "created_in_future"),
    ({"conversation": "c" * 201}, "conversation_too_long"),
    ({"conversation": "a\0b"}, "bad_conversation"),
    ({"capability": "c" * 2049}, "capability_too_long"),
]


@pytest.mark.case("oip:W4", "oip:W5", "oip:W59")
async def test_the_shape_is_judged_in_the_order_of_the_page(home: Home) -> None:
    for changes, reason in SHAPES:
        heard = await home.post(vector("envelope-query") | changes)
        assert (heard.status, heard.members["error"], heard.members["reason"]) == (400, "malformed_envelope", reason)
        assert "oip-verdict" not in heard.http.headers


@pytest.mark.case("oip:W4")
async def test_an_envelope_may_live_fifteen_minutes_and_be_two_ahead(home: Home) -> None:
    longest = resigned(vector("envelope-query"), expires_at="2026-01-02T03:19:10.678Z")
    assert (await home.post(longest)).kind == "result"
    ahead = home.letter(now=home.clock.now() + 120_000)
    assert (await home.post(ahead)).kind == "result"


AMBIGUOUS = [
    (b'{"protocol":"oip-message/1",' + b'"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "too_deep"),
    (b'{"protocol":"oip-message/1","id":"a","id":"b"}', "duplicate_member"),
    (b'{"protocol":"oip-message/1","\\u0069d":"a","id":"b"}', "duplicate_member"),
    (b'{"protocol":"oip-message/1","n":9007199254740993}', "number_out_of_range"),
    (b'{"protocol":"oip-message/1","n":1e400}', "number_out_of_range"),
    (b'{"protocol":"oip-message/1","n":"\\ud800"}', "invalid_unicode"),
]


@pytest.mark.case("fed:A9", "fed:A5", "oip:W50")
async def test_what_parsers_read_differently_is_no_envelope(home: Home) -> None:
    for raw, detail in AMBIGUOUS:
        heard = await home.post(raw)
        assert (heard.status, heard.members["error"]) == (400, "malformed_envelope")
        assert heard.members["reason"] == "non_canonical_json"
        assert heard.members["detail"].startswith(detail)


@pytest.mark.case("fed:A9")
async def test_what_is_not_json_is_said_to_be_none(home: Home) -> None:
    for raw in (b"", b"{", b"hello", b"{'a':1}", b"\xef\xbb\xbf{}", b"NaN"):
        heard = await home.post(raw)
        assert (heard.status, heard.members["error"]) == (400, "invalid_json"), raw
    for raw in (b"[" * 5000, b"\xff\xfe{\0}\0"):
        assert (await home.post(raw)).status == 400


async def test_a_value_that_is_no_object_is_no_envelope(home: Home) -> None:
    for raw, reason in ((b"null", "not_an_object"), (b"7", "not_an_object"), (b"[]", "wrong_protocol")):
        assert (await home.post(raw)).members["reason"] == reason


@pytest.mark.case("fed:A10")
async def test_spacing_and_order_on_the_wire_mean_nothing(home: Home) -> None:
    """Signed over the canonical form: the same members laid out otherwise verify, whichever way they were printed."""
    for raw in (
        json.dumps(home.letter(body={"b": 1, "a": "ü"}), indent=3, ensure_ascii=True),
        json.dumps(dict(reversed(home.letter(body={"b": 1.0, "a": "ü"}).items())), separators=(", ", ": ")),
        canonical(home.letter(body={"z": 1e-7})).decode(),
    ):
        assert (await home.post(raw.encode())).kind == "result"


# --- whom it is for ----------------------------------------------------------------------------------------------


async def test_who_does_not_live_here_is_not_found(home: Home) -> None:
    for to in ("other@home.example", "node@elsewhere.example", "node@sub.home.example"):
        sent = home.letter(recipient=to)
        heard = await home.post(sent)
        assert (heard.status, heard.members["error"]) == (404, "unknown_recipient")
        assert (heard.members["to"], heard.members["expected"]) == (to, NODE)
        assert await home.records(sent["id"]) == []


@pytest.mark.case("fed:B7")
async def test_the_spelling_of_an_agent_is_covered_by_the_signature_and_means_nothing_else(home: Home) -> None:
    sent = home.letter(sender="Alice@PEER.example", recipient="Node@HOME.Example", pair=pair_of(ALICE))
    heard = await home.post(sent)
    assert (heard.kind, heard.body["sender_verified"]) == ("result", True)
    assert (heard.members["to"], heard.members["from"]) == ("Alice@PEER.example", NODE)
    assert (await home.post(home.letter(id=sent["id"]))).reason == "replay_rejected"
    assert (await home.records(sent["id"]))[0]["from"] == ALICE
    assert (await home.post(sent | {"from": "alice@PEER.example"})).reason == "bad_signature"


async def test_several_agents_live_in_one_node(start: Start) -> None:
    home = await start(agents=("node", "clerk"))
    heard = await home.running.post("/oip/inbox", home.letter(recipient="clerk@home.example"))
    assert (heard.status, heard.json()["from"], heard.json()["body"]["agent"]) == (
        200,
        "clerk@home.example",
        "clerk@home.example",
    )


# --- who signed it -----------------------------------------------------------------------------------------------


@pytest.mark.case("fed:B4")
async def test_a_key_speaks_for_its_own_agent_only(home: Home) -> None:
    envelope = home.draft(sender=ALICE)
    value = pair_of(MALLORY)
    forged = sign(envelope, value, kid=MALLORY)
    heard = await home.post(forged)
    assert (heard.reason, heard.verdict) == ("key_not_of_sender", ("rejected:key_not_of_sender", 401))
    assert (await home.post(sign(envelope, value, kid=ALICE))).reason == "bad_signature"


async def test_the_unpublished_may_only_ask(home: Home) -> None:
    for kind in ("propose", "invoke", "result", "event", "cancel", "error"):
        sent = home.letter(kind, {"text": "x"}, STRANGER, pair=P256Pair.generate())
        heard = await home.post(sent)
        assert (heard.kind, heard.reason) == ("error", "sender_unverifiable")
        assert heard.body["resolve_failure"] == "agent_not_published"
        assert heard.verdict == ("rejected:sender_unverifiable", 401)
        assert (await home.record(sent["id"]))["verdict"] == "rejected:sender_unverifiable"


@pytest.mark.case("oip:W6", "oip:F1")
async def test_the_question_of_the_unpublished_is_answered_and_marked(home: Home) -> None:
    sent = home.letter(body={"text": "hello"}, sender=STRANGER, pair=P256Pair.generate())
    heard = await home.post(sent)
    assert (heard.kind, heard.body["sender_verified"], heard.body["echo"]) == ("result", False, {"text": "hello"})
    assert heard.verdict == ("echoed", 200)
    assert (await home.record(sent["id"]))["sender_verified"] is False


@pytest.mark.case("oip:W6")
async def test_expiry_and_hash_are_judged_whoever_asks(home: Home) -> None:
    pair = pair_of(ALICE)
    for sender in (ALICE, STRANGER):
        stale = home.letter(sender=sender, pair=pair, now=home.clock.now() - 300_000)
        assert (await home.post(stale)).reason == "expired_envelope"
        altered = home.letter(body={"text": "a"}, sender=sender, pair=pair) | {"body": {"text": "b"}}
        assert (await home.post(altered)).reason == "body_hash_mismatch"
    assert home.book.resolved == 0


@pytest.mark.case("oip:F7")
async def test_a_stale_message_is_refused_though_well_signed(home: Home) -> None:
    sent = home.letter(now=home.clock.now() - 300_000)
    heard = await home.post(sent)
    assert (heard.kind, heard.reason, heard.verdict) == (
        "error",
        "expired_envelope",
        ("rejected:expired_envelope", 401),
    )
    last = home.letter(now=home.clock.now() - 299_999)
    assert (await home.post(last)).kind == "result"


async def test_what_a_refused_message_calls_itself_is_not_written_down(home: Home) -> None:
    """The hash of a message that was turned away is any text its sender likes."""
    sent = home.letter() | {"body_sha256": "\0" + "x" * 5000}
    assert (await home.post(sent)).reason == "body_hash_mismatch"
    assert (await home.record(sent["id"]))["body_sha256"] == ""
