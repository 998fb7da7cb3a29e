"""The shape of an envelope, in the order of the specification, and the building of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deedbox.canonical import admit, b64url, canonical, digest, sha256_hex
from deedbox.clock import Ids, utc_z
from deedbox.envelope.message import (
    KINDS,
    MAX_LIFE_BY_MAIL,
    Envelope,
    Malformed,
    build,
    compose,
    redacted,
    splice_signature,
)

VECTORS = Path(__file__).resolve().parents[1] / "vectors/oip"
NOW = 1767323045678
VALID = (
    "query", "invoke", "propose", "decision", "cancel", "result-query", "result-invoke", "error", "sealed-query",
)  # fmt: skip
NEGATIVE = json.loads((VECTORS / "envelope-negative.json").read_text())["cases"]


class StoppedClock:
    def now(self) -> int:
        return NOW


IDS = Ids(StoppedClock(), lambda size: bytes(range(size)))


def vector(name: str) -> dict[str, Any]:
    members = admit((VECTORS / f"envelope-{name}.json").read_bytes())
    assert isinstance(members, dict)
    return members


def changed(**members: Any) -> dict[str, Any]:
    return vector("query") | {name.rstrip("_"): member for name, member in members.items()}


def without(*names: str) -> dict[str, Any]:
    return {name: member for name, member in vector("query").items() if name not in names}


def reason_of(value: Any, **limits: int) -> str:
    with pytest.raises(Malformed) as malformed:
        Envelope.parse(value, **{"now": NOW} | limits)
    refusal = malformed.value
    assert (refusal.code, refusal.status) == ("malformed_envelope", 400)
    assert refusal.extra == {"reason": refusal.reason}
    return refusal.reason


def draft(**more: Any) -> Any:
    return {
        "ids": IDS,
        "kind": "result",
        "sender": "node@home.example",
        "recipient": "Alice@Peer.Example",
        "body": {"b": 1, "a": "é"},
        "conversation": "conv_1",
        "now": NOW,
    } | more


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALID)
def test_the_envelopes_of_the_specification(name: str) -> None:
    members = vector(name)
    envelope = Envelope.parse(members, now=NOW)
    unsigned = {key: member for key, member in members.items() if key != "signature"}
    assert envelope.preimage() == canonical(unsigned)
    assert envelope.content_sha256() == digest(unsigned)
    assert sha256_hex(envelope.body_bytes) == envelope.body_sha256 == members["body_sha256"]
    assert envelope.members == members
    assert (envelope.id, envelope.kind) == (members["id"], members["kind"])
    assert (envelope.sender, envelope.kid) == (members["from"], members["from"])
    assert utc_z(envelope.created_at) == members["created_at"]
    assert utc_z(envelope.expires_at) == members["expires_at"]
    assert envelope.conversation == members["conversation"]
    assert envelope.in_reply_to == members["in_reply_to"]
    assert envelope.capability == members["capability"]
    assert envelope.body == (members["body"] or {})
    assert envelope.enc == members.get("enc")


def test_the_signing_intermediates() -> None:
    expected = json.loads((VECTORS / "signing-intermediates.json").read_text())
    envelope = Envelope.parse(vector("query"), now=NOW)
    assert envelope.body_bytes == expected["body_preimage"].encode()
    assert envelope.preimage() == expected["signing_preimage"].encode()
    assert envelope.content_sha256() == expected["signing_preimage_sha256"]


@pytest.mark.parametrize(
    "case", [case for case in NEGATIVE if case["stage"] == "shape"], ids=lambda case: str(case["name"])
)
def test_the_altered_envelopes_whose_shape_is_wrong(case: dict[str, Any]) -> None:
    members = case["envelope"]
    if "expand" in case:
        assert case["expand"]["member"] == "body.text"
        members["body"]["text"] = case["expand"]["repeat"] * case["expand"]["count"]
    assert reason_of(members) == case["expect"]


def test_an_unparseable_expiry_is_a_matter_of_shape() -> None:
    """The reference calls it `expired_envelope`; §27 names the difference."""
    (case,) = [case for case in NEGATIVE if case["name"] == "unparseable expiry"]
    assert reason_of(case["envelope"]) == "bad_times"


SHAPES: list[tuple[Any, str]] = [
    (None, "not_an_object"),
    ("oip-message/1", "not_an_object"),
    (7, "not_an_object"),
    ([], "wrong_protocol"),
    ({}, "wrong_protocol"),
    (changed(protocol=None), "wrong_protocol"),
    (changed(id=None), "bad_id"),
    (changed(id=["msg_AAECAwQFBgcI"]), "bad_id"),
    (changed(id="msg_AAECAwQFBgcI\n"), "bad_id"),
    (changed(id="MSG_AAECAwQFBgcI"), "bad_id"),
    (changed(id="msg_" + "A" * 197), "bad_id"),
    (changed(kind=None), "bad_kind"),
    (changed(kind=["query"]), "bad_kind"),
    (changed(kind="Query"), "bad_kind"),
    (changed(kind="accept"), "bad_kind"),
    (changed(from_=None), "bad_from"),
    (changed(from_="alice@peer.example:443"), "bad_from"),
    (changed(from_="alice@localhost"), "bad_from"),
    (changed(from_="legit-bank.example@attacker.example/"), "bad_from"),
    (changed(to={}), "bad_to"),
    (changed(to="node@home.example."), "bad_to"),
    (without("created_at"), "missing_times"),
    (without("expires_at"), "missing_times"),
    (changed(created_at=""), "missing_times"),
    (changed(created_at=0), "missing_times"),
    (changed(expires_at=False), "missing_times"),
    (without("body_sha256"), "missing_body_hash"),
    (changed(body_sha256=None), "missing_body_hash"),
    (changed(body={"text": "x" * 65526}), "body_too_large"),
    (changed(enc="x" * 65535), "body_too_large"),
    (changed(body={"n": 2**53}), "non_canonical_json"),
    (changed(extra="\ud800"), "non_canonical_json"),
    (changed(created_at=7), "bad_times"),
    (changed(created_at={}), "bad_times"),
    (changed(created_at="0"), "bad_times"),
    (changed(expires_at="2026-13-01"), "bad_times"),
    (changed(expires_at="2026-13-01T00:00:00Z"), "bad_times"),
    (changed(expires_at="2026-01-02T03:09:05.678"), "bad_times"),
    (changed(expires_at="2026-01-02T03:19:10.679Z"), "ttl_too_long"),
    (changed(expires_at="2027-01-02T03:04:05.678Z"), "ttl_too_long"),
    (changed(conversation="c" * 201), "conversation_too_long"),
    (changed(capability="c" * 2049), "capability_too_long"),
    (changed(body="text"), "bad_body"),
    (changed(body=[{}]), "bad_body"),
    (changed(body=0), "bad_body"),
    (changed(enc={"alg": "x"}), "bad_body"),
]


@pytest.mark.case("fed:B11", "oip:W5", "oip:W50", "oip:W51")
@pytest.mark.parametrize(("value", "reason"), SHAPES)
def test_what_is_no_envelope(value: Any, reason: str) -> None:
    assert reason_of(value) == reason


def test_the_first_fault_is_the_reason() -> None:
    faults: list[tuple[str, Any, str]] = [
        ("protocol", "x", "wrong_protocol"),
        ("id", "x", "bad_id"),
        ("kind", "x", "bad_kind"),
        ("from", "x", "bad_from"),
        ("to", "x", "bad_to"),
        ("created_at", "", "missing_times"),
        ("body_sha256", 0, "missing_body_hash"),
        ("body", {"text": "x" * 70_000}, "body_too_large"),
        ("expires_at", "x", "bad_times"),
        ("conversation", "x" * 201, "conversation_too_long"),
        ("capability", "x" * 2049, "capability_too_long"),
    ]
    good = vector("query")
    wrong = good | {name: bad for name, bad, _ in faults}
    for name, _, reason in faults:
        assert reason_of(wrong) == reason
        wrong[name] = good[name]
    assert Envelope.parse(wrong, now=NOW).id == good["id"]


def test_the_limits_themselves_are_allowed() -> None:
    allowed = changed(
        id="msg_" + "A" * 196,
        conversation="c" * 200,
        capability="c" * 2048,
        body={"text": "x" * 65525},
        expires_at="2026-01-02T03:19:10.678Z",
    )
    assert len(Envelope.parse(allowed, now=NOW).body_bytes) == 65536


@pytest.mark.case("fed:B12", "oip:W4", "oip:W5")
def test_times_against_the_clock() -> None:
    minute = 60_000

    def at(created: int, life: int = 5 * minute) -> dict[str, Any]:
        return changed(created_at=utc_z(created), expires_at=utc_z(created + life))

    for created in (NOW, NOW + 120_000, NOW - 4 * minute, NOW - 120 * minute):
        envelope = Envelope.parse(at(created), now=NOW)
        assert (envelope.created_at, envelope.expires_at) == (created, created + 5 * minute)
    for created in (NOW + 120_001, NOW + 4 * minute, NOW + 6 * minute):
        assert reason_of(at(created)) == "created_in_future"
    assert reason_of(at(NOW, 365 * 24 * 60 * minute)) == "ttl_too_long"
    assert reason_of(at(NOW - 1, 905_001)) == "ttl_too_long"
    assert Envelope.parse(at(NOW, 905_000), now=NOW).expires_at == NOW + 905_000


@pytest.mark.case("oip:W4")
def test_by_mail_an_envelope_may_live_seven_days() -> None:
    week = changed(expires_at=utc_z(NOW + MAX_LIFE_BY_MAIL))
    assert reason_of(week) == "ttl_too_long"
    assert Envelope.parse(week, now=NOW, max_life=MAX_LIFE_BY_MAIL).expires_at == NOW + 7 * 86_400_000
    assert reason_of(changed(expires_at=utc_z(NOW + MAX_LIFE_BY_MAIL + 5_001)), max_life=MAX_LIFE_BY_MAIL)


@pytest.mark.case("fed:B7")
def test_ids_are_compared_in_lower_case_and_echoed_as_spelled() -> None:
    envelope = Envelope.parse(changed(from_="Planner@Alpha.Example", to="Node@HOME.example"), now=NOW)
    assert (envelope.sender, envelope.sender_domain) == ("planner@alpha.example", "alpha.example")
    assert envelope.recipient == "node@home.example"
    assert (envelope.spelled_from, envelope.spelled_to) == ("Planner@Alpha.Example", "Node@HOME.example")
    assert b'"Planner@Alpha.Example"' in envelope.preimage()


@pytest.mark.case("fed:A6")
def test_unknown_members_stay_and_are_signed() -> None:
    envelope = Envelope.parse(changed(receipt={"seq": 7}, From="x"), now=NOW)
    assert envelope.members["receipt"] == {"seq": 7}
    assert b'"receipt":{"seq":7}' in envelope.preimage()
    assert envelope.preimage().startswith(b'{"From":"x","body":')


def test_members_of_another_type_count_as_absent() -> None:
    envelope = Envelope.parse(
        changed(conversation=7, capability={}, in_reply_to=["x"], signature="x", enc=0, body=None), now=NOW
    )
    assert (envelope.conversation, envelope.capability, envelope.in_reply_to) == ("", None, None)
    assert (envelope.signature, envelope.kid, envelope.enc) == (None, None, None)
    assert (envelope.body, envelope.body_bytes) == ({}, b"{}")
    assert b'"body":null' in envelope.preimage()
    absent = Envelope.parse(without("conversation", "capability", "in_reply_to", "body", "signature"), now=NOW)
    assert (absent.conversation, absent.body_bytes) == ("", b"{}")
    assert b'"body":' not in absent.preimage()


def test_an_answered_id_is_a_message_id_or_nothing() -> None:
    assert Envelope.parse(changed(in_reply_to="msg_AAECAwQFBgcI"), now=NOW).in_reply_to == "msg_AAECAwQFBgcI"
    for other in ("", "inv_AAECAwQFBgcI", "msg_short", "msg_" + "A" * 300):
        assert Envelope.parse(changed(in_reply_to=other), now=NOW).in_reply_to is None


def test_nothing_printed_shows_the_token() -> None:
    members = vector("invoke")
    token = members["capability"]
    assert token not in repr(Envelope.parse(members, now=NOW))
    assert token not in repr(compose(**draft(capability=token)))
    hidden = redacted(members)
    assert token not in json.dumps(hidden)
    assert hidden["capability"] == f"[capability of {len(token)} characters]"
    assert members["capability"] == token
    assert redacted(vector("query")) == vector("query")


# --- writing -----------------------------------------------------------------------------------------------------


def test_what_is_built_is_read_again() -> None:
    built = build(**draft(in_reply_to="msg_AAECAwQFBgcI", capability="sh.x", extra={"receipt": {"seq": 1}}))
    assert built["body_sha256"] == digest({"b": 1, "a": "é"})
    assert (built["created_at"], built["expires_at"]) == (utc_z(NOW), utc_z(NOW + 300_000))
    envelope = Envelope.parse(built, now=NOW)
    assert (envelope.sender, envelope.spelled_to) == ("node@home.example", "Alice@Peer.Example")
    assert (envelope.in_reply_to, envelope.capability) == ("msg_AAECAwQFBgcI", "sh.x")
    assert envelope.members["receipt"] == {"seq": 1}
    assert built["id"].startswith("msg_")
    assert build(**draft(id="msg_AAECAwQFBgcI"))["id"] == "msg_AAECAwQFBgcI"


@pytest.mark.parametrize(
    "more",
    [{}, {"body": None}, {"body": {}}, {"body": {"\ufb33": 1e-7, "\U0001f600": 1}}, {"extra": {"zz": {"to": "x"}}}],
)
def test_the_unsigned_bytes_are_the_canonical_members(more: dict[str, Any]) -> None:
    unsigned = compose(**draft(**more))
    assert unsigned.wire == canonical(unsigned.members)
    wire = splice_signature(unsigned.wire, "node@home.example", b64url(bytes(64)))
    signature = {"alg": "ES256", "kid": "node@home.example", "value": b64url(bytes(64))}
    assert admit(wire) == json.loads(json.dumps(unsigned.members)) | {"signature": signature}


@pytest.mark.parametrize(("asked", "given"), [(0, 30_000), (60_000, 60_000), (10**9, 900_000)])
def test_life_is_kept_within_bounds(asked: int, given: int) -> None:
    assert build(**draft(life=asked))["expires_at"] == utc_z(NOW + given)


def test_a_mail_may_be_built_to_live_days() -> None:
    built = build(**draft(life=3 * 86_400_000, max_life=MAX_LIFE_BY_MAIL))
    assert built["expires_at"] == utc_z(NOW + 3 * 86_400_000)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"id": "x"}, "bad_id"),
        ({"kind": "accept"}, "bad_kind"),
        ({"sender": "node"}, "bad_from"),
        ({"recipient": "alice@peer.example:1"}, "bad_to"),
        ({"conversation": "c" * 201}, "conversation_too_long"),
        ({"capability": "c" * 2049}, "capability_too_long"),
        ({"body": {"text": "x" * 65526}}, "body_too_large"),
        ({"enc": {"alg": "x"}}, "bad_body"),
        ({"body": {"n": 1e20}}, "non_canonical_json"),
        ({"body": {"n": 2**53}}, "non_canonical_json"),
        ({"body": {"n": float("nan")}}, "non_canonical_json"),
        ({"extra": {"x": "\ud800"}}, "non_canonical_json"),
    ],
)
def test_what_a_peer_would_refuse_is_not_built(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(Malformed) as malformed:
        build(**draft(**more))
    assert malformed.value.reason == reason


def test_every_kind_can_be_built() -> None:
    for kind in KINDS:
        assert Envelope.parse(build(**draft(kind=kind)), now=NOW).kind == kind
