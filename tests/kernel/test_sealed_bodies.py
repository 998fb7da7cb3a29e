"""Sealing, opening, and what a sealed body is bound to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from deedbox.canonical import admit, b64url, canonical, digest, sha256_digest, sha256_hex, unb64url
from deedbox.clock import Ids
from deedbox.envelope.message import Envelope
from deedbox.envelope.seal import (
    BINDING,
    compose_sealed,
    open_body,
    seal_body,
    seal_bytes,
    sign,
    sign_bytes,
    verify,
)
from deedbox.identity.keys import P256Pair
from deedbox.refusals import Refusal

VECTORS = Path(__file__).resolve().parents[1] / "vectors/oip"
NOW = 1767323045678
PAIRS = {id_: P256Pair.from_jwk(jwk) for id_, jwk in json.loads((VECTORS / "keys.json").read_text())["agents"].items()}
ALICE, MALLORY, NODE = (PAIRS[id_] for id_ in ("alice@peer.example", "mallory@peer.example", "node@home.example"))
SEALED = json.loads((VECTORS / "sealed-intermediates.json").read_text())
SEALED_QUERY = json.loads((VECTORS / "envelope-sealed-query.json").read_text())


class StoppedClock:
    def now(self) -> int:
        return NOW


ROUTE = {"sender": "alice@peer.example", "recipient": "node@home.example", "message_id": "msg_kJGSk5SVlpeYmZqb"}


def sealed(body: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    route = {
        "sender": ROUTE["sender"],
        "recipient_id": ROUTE["recipient"],
        "message_id": ROUTE["message_id"],
    }
    return seal_body(body, NODE.public, **{**route, **more})


def sealed_text(text: str | bytes) -> dict[str, Any]:
    plaintext = text.encode() if isinstance(text, str) else text
    return seal_bytes(plaintext, NODE.public, ephemeral=P256Pair.generate(), iv=bytes(12))


def code_of(enc: Any, pair: P256Pair = NODE, /, **route: str) -> str:
    with pytest.raises(Refusal) as refused:
        open_body(enc, pair, **{**ROUTE, **route})
    assert refused.value.status == 400
    return refused.value.code


def test_the_sealed_intermediates() -> None:
    ephemeral = P256Pair.from_jwk(SEALED["ephemeral_private_jwk"])
    shared = ephemeral.agree(NODE.public)
    assert shared.hex() == NODE.agree(ephemeral.public).hex() == SEALED["ecdh_shared_x_hex"]
    assert sha256_digest(shared).hex() == SEALED["aes_key_sha256_of_shared_hex"]
    plaintext = SEALED["plaintext_utf8"].encode()
    enc = seal_bytes(plaintext, NODE.public, ephemeral=ephemeral, iv=bytes.fromhex(SEALED["iv_hex"]))
    assert unb64url(enc["ciphertext"]).hex() == SEALED["ciphertext_hex"]
    assert canonical(enc).decode() == SEALED["body_sha256_preimage"]

    members = SEALED_QUERY
    assert enc == members["enc"]
    unsigned = {name: member for name, member in members.items() if name != "signature"}
    unsigned |= {"enc": enc, "body_sha256": sha256_hex(canonical(enc))}
    assert canonical(unsigned).decode() == SEALED["signing_preimage"]
    assert sign(unsigned, ALICE, "alice@peer.example") == members
    assert unb64url(members["signature"]["value"]).hex() == SEALED["signature_hex_r_then_s"]


def test_the_sealed_vector_opens() -> None:
    """The reference seals without a binding: the body is there, and nothing says for whom it was meant."""
    envelope = Envelope.parse(SEALED_QUERY, now=NOW)
    verify(envelope, ALICE.public, now=NOW)
    opened = open_body(envelope.enc, NODE, sender=envelope.sender, recipient=envelope.recipient, message_id=envelope.id)
    assert opened == ({"n": 7, "text": "sealed question"}, False, None)
    assert code_of(envelope.enc, MALLORY) == "decrypt_failed"


@pytest.mark.case("oip:W11")
def test_what_is_sealed_opens_for_its_recipient_only() -> None:
    enc = sealed({"text": "é", "n": 0.5})
    assert sorted(enc) == ["alg", "ciphertext", "epk", "iv"]
    assert enc["alg"] == "ECDH-P256-A256GCM"
    assert sorted(enc["epk"]) == ["crv", "kty", "x", "y"]
    assert len(unb64url(enc["iv"])) == 12
    assert open_body(enc, NODE, **ROUTE) == ({"text": "é", "n": 0.5}, True, None)
    assert code_of(enc, MALLORY) == "decrypt_failed"
    assert sealed({})["epk"] != enc["epk"]
    assert sealed({})["iv"] != enc["iv"]


@pytest.mark.case("oip:W11")
def test_the_binding_is_inside_and_not_part_of_the_body() -> None:
    ephemeral = P256Pair.generate()
    enc = sealed({"b": 1}, ephemeral=ephemeral, iv=bytes(12))
    key = sha256_digest(ephemeral.agree(NODE.public))
    inside = AESGCM(key).decrypt(bytes(12), unb64url(enc["ciphertext"]), None)
    binding = {"from": ROUTE["sender"], "to": ROUTE["recipient"], "id": ROUTE["message_id"]}
    assert inside == canonical({"b": 1, BINDING: binding})
    assert BINDING not in open_body(enc, NODE, **ROUTE).body


@pytest.mark.case("oip:W11")
@pytest.mark.parametrize(
    "change",
    [{"sender": "mallory@peer.example"}, {"recipient": "other@home.example"}, {"message_id": "msg_AAECAwQFBgcI"}],
)
def test_a_block_handed_on_by_another_is_refused(change: dict[str, str]) -> None:
    assert code_of(sealed({"secret": 1}), NODE, **change) == "decrypt_refused"


@pytest.mark.parametrize(
    "binding", [7, [], {}, "", {"from": ROUTE["sender"], "to": ROUTE["recipient"]}, {"from": None, "to": 1, "id": 2}]
)
def test_a_broken_binding_is_refused(binding: Any) -> None:
    assert code_of(sealed_text(orjson.dumps({BINDING: binding}))) == "decrypt_refused"


def test_a_binding_compares_ids_in_lower_case() -> None:
    enc = sealed({}, sender="Alice@Peer.Example", recipient_id="NODE@home.example")
    assert open_body(enc, NODE, **ROUTE).bound


@pytest.mark.case("oip:W12")
def test_a_token_may_travel_inside() -> None:
    enc = sealed({"key": "NOW"}, capability="sh.token")
    assert open_body(enc, NODE, **ROUTE) == ({"key": "NOW"}, True, "sh.token")
    assert open_body(sealed({}, capability="x" * 2049), NODE, **ROUTE).capability is None
    binding = {"from": ROUTE["sender"], "to": ROUTE["recipient"], "id": ROUTE["message_id"], "capability": 7}
    assert open_body(sealed_text(orjson.dumps({BINDING: binding})), NODE, **ROUTE).capability is None


@pytest.mark.parametrize("text", ['{"a": 1}', " {} ", "null"])
def test_the_sealed_text_need_not_be_canonical(text: str) -> None:
    assert open_body(sealed_text(text), NODE, **ROUTE) == (json.loads(text) or {}, False, None)


@pytest.mark.parametrize(
    "text", ["", "7", "[]", '"x"', "{", '{"a":1,"a":2}', '{"a":1e20}', '"\\ud800"', b"\xff", "[" * 40, "x" * 70_000]
)
def test_a_sealed_text_that_is_no_body(text: str | bytes) -> None:
    assert code_of(sealed_text(text)) == "decrypt_failed"


GOOD = sealed({"a": 1}, ephemeral=P256Pair(7), iv=bytes(12))


@pytest.mark.parametrize(
    "enc",
    [
        None,
        7,
        "x",
        [],
        {},
        GOOD | {"alg": "none"},
        GOOD | {"epk": None},
        GOOD | {"epk": P256Pair(7).private_jwk()},
        GOOD | {"epk": GOOD["epk"] | {"y": GOOD["epk"]["x"]}},
        GOOD | {"epk": MALLORY.public.jwk},
        GOOD | {"iv": b64url(bytes(8))},
        GOOD | {"iv": b64url(bytes(16))},
        GOOD | {"iv": b64url(b"\1" * 12)},
        GOOD | {"iv": None},
        GOOD | {"ciphertext": b64url(bytes(15))},
        GOOD | {"ciphertext": GOOD["ciphertext"][:-4]},
        GOOD | {"ciphertext": "A" + GOOD["ciphertext"]},
        GOOD | {"ciphertext": GOOD["ciphertext"] + "="},
        GOOD | {"ciphertext": 7},
        {name: member for name, member in GOOD.items() if name != "iv"},
    ],
)
def test_a_block_that_does_not_open(enc: Any) -> None:
    assert open_body(GOOD, NODE, **ROUTE).body == {"a": 1}
    assert code_of(enc) == "decrypt_failed"


def test_a_nonce_is_twelve_bytes() -> None:
    with pytest.raises(ValueError, match="12 bytes"):
        seal_bytes(b"{}", NODE.public, ephemeral=P256Pair.generate(), iv=bytes(16))


def test_a_sealed_envelope_is_built_signed_verified_and_opened() -> None:
    unsigned = compose_sealed(
        ALICE.public,
        ids=Ids(StoppedClock()),
        kind="result",
        sender="node@home.example",
        recipient="alice@peer.example",
        body={"text": "for alice"},
        conversation="conv_1",
        now=NOW,
    )
    assert b"for alice" not in unsigned.wire
    assert unsigned.members["body"] is None
    assert unsigned.members["body_sha256"] == digest(unsigned.members["enc"])
    envelope = Envelope.parse(admit(sign_bytes(unsigned.wire, NODE, "node@home.example")), now=NOW)
    verify(envelope, NODE.public, now=NOW)
    opened = open_body(
        envelope.enc, ALICE, sender=envelope.sender, recipient=envelope.recipient, message_id=envelope.id
    )
    assert opened == ({"text": "for alice"}, True, None)
