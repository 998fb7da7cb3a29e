"""Signing and verifying, and the order of refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox.canonical import admit, b64url, canonical, digest, unb64url
from deedbox.clock import Ids, utc_z
from deedbox.envelope.message import Envelope, compose
from deedbox.envelope.seal import sign, sign_bytes, verify, verify_content
from deedbox.identity.keys import P256Pair, P256Public
from deedbox.refusals import Refusal

VECTORS = Path(__file__).resolve().parents[1] / "vectors/oip"
NOW = 1767323045678
PAIRS = {id_: P256Pair.from_jwk(jwk) for id_, jwk in json.loads((VECTORS / "keys.json").read_text())["agents"].items()}
ALICE, MALLORY, NODE = (PAIRS[id_] for id_ in ("alice@peer.example", "mallory@peer.example", "node@home.example"))
NEGATIVE = json.loads((VECTORS / "envelope-negative.json").read_text())["cases"]
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
VALID = (
    "query", "invoke", "propose", "decision", "cancel", "result-query", "result-invoke", "error", "sealed-query",
)  # fmt: skip


class StoppedClock:
    def now(self) -> int:
        return NOW


IDS = Ids(StoppedClock())


def vector(name: str) -> dict[str, Any]:
    members = admit((VECTORS / f"envelope-{name}.json").read_bytes())
    assert isinstance(members, dict)
    return members


def signed(pair: P256Pair = ALICE, kid: str | None = None, **changes: Any) -> dict[str, Any]:
    """The query of the vectors with changes, signed anew."""
    members = vector("query") | {name.rstrip("_"): member for name, member in changes.items()}
    if "body" in changes:
        members["body_sha256"] = digest(changes["body"])
    return sign(members, pair, kid or members["from"])


def judged(members: Any, key: P256Public | None = ALICE.public, now: int = NOW, **more: Any) -> str:
    """``verified`` or the reason why not, from the bytes on."""
    try:
        verify(Envelope.parse(admit(orjson.dumps(members)), now=now), key, now=now, **more)
    except Refusal as refused:
        return str(refused.extra.get("reason", refused.code))
    return "verified"


# --- signatures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALID)
def test_the_envelopes_of_the_specification_verify(name: str) -> None:
    members = vector(name)
    assert judged(members, PAIRS[members["from"]].public) == "verified"
    assert judged(members, MALLORY.public) == "bad_signature"


@pytest.mark.parametrize("name", VALID)
def test_our_signatures_are_those_of_the_vectors(name: str) -> None:
    members = vector(name)
    assert sign(members, PAIRS[members["from"]], members["from"]) == members
    unsigned = canonical({key: member for key, member in members.items() if key != "signature"})
    assert admit(sign_bytes(unsigned, PAIRS[members["from"]], members["from"])) == members


def test_the_signing_intermediates() -> None:
    expected = json.loads((VECTORS / "signing-intermediates.json").read_text())
    assert ALICE.sign(expected["signing_preimage"].encode()).hex() == expected["signature_hex_r_then_s"]


DIFFERENCES = {"unparseable expiry": "bad_times", "signature.kid is not checked upstream": "key_not_of_sender"}


@pytest.mark.parametrize("case", NEGATIVE, ids=lambda case: str(case["name"]))
def test_the_altered_envelopes(case: dict[str, Any]) -> None:
    members = case["envelope"]
    if "expand" in case:
        members["body"]["text"] = case["expand"]["repeat"] * case["expand"]["count"]
    sender = PAIRS.get(members["from"], ALICE).public
    assert judged(members, sender) == DIFFERENCES.get(case["name"], case["expect"])


def test_the_order_of_refusals() -> None:
    members = signed(MALLORY, kid="bob@peer.example", created_at=utc_z(NOW - 300_000), expires_at=utc_z(NOW))
    good = signed()
    members["body_sha256"] = "0" * 64
    value = members["signature"].pop("value")
    assert judged(members, None) == "expired_envelope"
    members["expires_at"] = utc_z(NOW + 1)
    assert judged(members, None) == "body_hash_mismatch"
    members["body_sha256"] = good["body_sha256"]
    assert judged(members, None) == "missing_signature"
    members["signature"]["value"] = value
    assert judged(members, None) == "key_not_of_sender"
    members["signature"]["kid"] = members["from"]
    assert judged(members, None) == "sender_key_unresolved"
    assert judged(members) == "bad_signature"
    assert judged(sign(members, ALICE, members["from"])) == "verified"


@pytest.mark.case("fed:B12")
def test_expiry_is_strict_and_on_the_receivers_clock() -> None:
    members = signed(created_at=utc_z(NOW), expires_at=utc_z(NOW + 60_000))
    assert judged(members, now=NOW + 59_999) == "verified"
    assert judged(members, now=NOW + 60_000) == "expired_envelope"
    two_hours_old = signed(created_at=utc_z(NOW - 7_200_000), expires_at=utc_z(NOW - 6_900_000))
    assert judged(two_hours_old) == "expired_envelope"


def test_a_refusal_is_401_and_named_by_its_reason() -> None:
    with pytest.raises(Refusal) as refused:
        verify(Envelope.parse(vector("query"), now=NOW), None, now=NOW)
    assert (refused.value.code, refused.value.status) == ("sender_key_unresolved", 401)


def test_content_is_judged_even_without_a_key() -> None:
    verify_content(Envelope.parse(vector("query"), now=NOW), now=NOW)
    altered = vector("query") | {"body": {"text": "other"}}
    with pytest.raises(Refusal, match="body_hash_mismatch"):
        verify_content(Envelope.parse(altered, now=NOW), now=NOW)


@pytest.mark.case("fed:B4", "oip:W13")
def test_a_key_is_not_authority_to_speak_for_another() -> None:
    forged = signed(MALLORY, kid="mallory@peer.example")
    assert judged(forged) == "key_not_of_sender"
    assert judged(forged, MALLORY.public) == "key_not_of_sender"
    assert judged(signed(MALLORY)) == "bad_signature"


@pytest.mark.case("oip:W13")
def test_a_kid_may_name_another_published_key_of_the_sender() -> None:
    rotated = P256Pair.generate()
    members = signed(rotated, kid="2026-02")
    assert judged(members) == "key_not_of_sender"
    assert judged(members, keys_by_kid={"2026-01": MALLORY.public}) == "key_not_of_sender"
    assert judged(members, keys_by_kid={"2026-02": rotated.public}) == "verified"
    assert judged(members, None, keys_by_kid={"2026-02": rotated.public}) == "verified"
    assert judged(members, keys_by_kid={"2026-02": MALLORY.public}) == "bad_signature"


@pytest.mark.case("fed:B7")
def test_a_kid_is_the_sender_in_any_spelling() -> None:
    assert judged(signed(from_="Alice@Peer.Example", kid="ALICE@peer.example")) == "verified"


@pytest.mark.case("fed:B1")
def test_the_mirrored_signature_verifies_and_changes_no_hash() -> None:
    members = signed()
    raw = unb64url(members["signature"]["value"])
    mirrored = raw[:32] + (ORDER - int.from_bytes(raw[32:], "big")).to_bytes(32, "big")
    other = members | {"signature": members["signature"] | {"value": b64url(mirrored)}}
    assert other != members
    assert judged(other) == "verified"
    one, two = (Envelope.parse(each, now=NOW) for each in (members, other))
    assert (one.id, one.content_sha256()) == (two.id, two.content_sha256())


@pytest.mark.case("fed:B2")
@pytest.mark.parametrize("size", [0, 62, 63, 65, 66, 72])
def test_a_signature_of_another_size(size: int) -> None:
    members = signed()
    value = b64url(unb64url(members["signature"]["value"])[:size].ljust(size, b"\0"))
    members["signature"]["value"] = value
    assert judged(members) == ("bad_signature" if size else "missing_signature")


@pytest.mark.parametrize("value", [7, None, [], "x", "=" * 86, "é" * 86, b64url(bytes(64)), b64url(b"\xff" * 64)])
def test_a_signature_that_is_none(value: Any) -> None:
    members = signed()
    members["signature"]["value"] = value
    assert judged(members) == ("bad_signature" if isinstance(value, str) else "missing_signature")


@pytest.mark.parametrize("kid", [None, 7, "", ["alice@peer.example"]])
def test_a_kid_that_is_none(kid: Any) -> None:
    members = signed()
    members["signature"]["kid"] = kid
    assert judged(members) == "key_not_of_sender"


@pytest.mark.case("fed:A10")
def test_spacing_and_order_on_the_wire_mean_nothing() -> None:
    members = signed(body={"n": 1.5, "é": ["\ufb33", "\U0001f600"]})
    backwards = dict(reversed(list(members.items())))
    for raw in (
        json.dumps(members, indent=3).encode(),
        json.dumps(backwards, separators=(" , ", " : "), ensure_ascii=False).encode(),
        canonical(members),
    ):
        verify(Envelope.parse(admit(raw), now=NOW), ALICE.public, now=NOW)


@pytest.mark.case("fed:A6")
@pytest.mark.parametrize("change", [{"run": ["y"]}, {"Run": []}, {"run": ["x"], "RUN": 1}])
def test_unknown_members_are_covered_as_they_are(change: dict[str, Any]) -> None:
    members = signed(run=["x"], Run=["y"])
    assert judged(members) == "verified"
    assert judged(members | change) == "bad_signature"


@pytest.mark.case("fed:A5", "oip:W50")
@pytest.mark.parametrize("twice", [b'"amount":1,"amount":2', b'"amount":1,"\\u0061mount":2'])
def test_a_signature_for_one_reading_does_not_carry_another(twice: bytes) -> None:
    raw = orjson.dumps(signed(body={"amount": 2}))
    assert raw.count(b'"amount":2') == 1
    with pytest.raises(Refusal, match="duplicate_member"):
        admit(raw.replace(b'"amount":2', twice))


@pytest.mark.case("oip:W51")
def test_a_body_that_is_no_object_never_reaches_an_object() -> None:
    for body in ("text", ["x"], 7, True):
        assert judged(signed(body=body)) == "bad_body"


@pytest.mark.parametrize("extra", [None, {"receipt": {"to": "x@y.example"}}, {"a": 1, "trace": {"zz": "}"}}])
def test_the_spliced_wire_is_the_signed_envelope(extra: dict[str, Any] | None) -> None:
    unsigned = compose(
        ids=IDS,
        kind="result",
        sender="node@home.example",
        recipient="alice@peer.example",
        body={"text": "café", "n": 0.1},
        conversation="conv_1",
        now=NOW,
        extra=extra,
    )
    wire = sign_bytes(unsigned.wire, NODE, "node@home.example")
    assert unsigned.wire == canonical(unsigned.members)
    assert admit(wire) == sign(unsigned.members, NODE, "node@home.example")
    envelope = Envelope.parse(admit(wire), now=NOW)
    assert envelope.preimage() == unsigned.wire
    verify(envelope, NODE.public, now=NOW)


ODD: list[Any] = [None, True, 0, -1, 1.5, "", "x", "\u2028", "a@b", [], [[]], {}, {"a": {}}, "9" * 300]


def test_no_odd_member_is_more_than_a_refusal() -> None:
    verified = 0
    for name in [*vector("sealed-query"), "new"]:
        for odd in ODD:
            members = vector("sealed-query") | {name: odd}
            try:
                envelope = Envelope.parse(admit(orjson.dumps(members)), now=NOW)
                assert envelope.conversation is not envelope.in_reply_to
                assert isinstance(envelope.body, dict)
                verify(envelope, ALICE.public, now=NOW)
            except Refusal:
                continue
            assert members == vector("sealed-query") or name == "new"
            verified += name != "new"
    assert verified == 2 + 1  # `body`, `capability` and `in_reply_to` are null in the vector
