"""The judge's own canonical JSON, signatures and sealing, held against vectors that neither it nor the node made."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from deedbox_conformance import wire

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
REFUSED = {"number integers", "number exponents", "number overflow becomes null", "lone surrogate"}
REFUSED |= {"duplicate member, last wins"}  # OIP 1.2 §2.4: their meaning differs between parsers


def vector(name: str) -> Any:
    return json.loads((VECTORS / "oip" / f"{name}.json").read_text("utf-8"))


AGENTS: dict[str, Any] = vector("keys")["agents"]


@pytest.mark.parametrize("case", vector("canonical")["cases"], ids=lambda case: case["name"])
def test_canonical_json(case: dict[str, str]) -> None:
    if case["name"] in REFUSED:
        with pytest.raises(wire.NotCanonical):
            wire.parse(case["json_text"])
        return
    text = wire.canonical(wire.parse(case["json_text"]))
    assert text == case["canonical"].encode()
    assert wire.sha256_hex(text) == case["sha256"]


@pytest.mark.parametrize("name", ["arrays", "french", "structures", "unicode", "values", "weird"])
def test_rfc_8785_pairs(name: str) -> None:
    given = json.loads((VECTORS / f"jcs/input/{name}.json").read_text("utf-8"))
    assert wire.canonical(given) == (VECTORS / f"jcs/output/{name}.json").read_bytes()


def test_ecmascript_numbers() -> None:
    for row in (VECTORS / "jcs/es6-numbers-10000.txt").read_text("ascii").splitlines():
        bits, _, text = row.partition(",")
        number = struct.unpack(">d", bytes.fromhex(bits.zfill(16)))[0]
        assert wire.canonical(number) == text.encode(), bits


@pytest.mark.parametrize(
    "text", [b"[NaN]", b'{"a":1,"\\u0061":2}', b"\xff", b"[" * 5000, b"\xef\xbb\xbf{}", b'{"\\ud800":1}']
)
def test_text_that_is_no_i_json(text: bytes) -> None:
    with pytest.raises(wire.NotCanonical):
        wire.parse(text)


def test_preimage_hash_and_signature_of_the_vectors() -> None:
    made, envelope = vector("signing-intermediates"), vector("envelope-query")
    assert wire.preimage(envelope) == made["signing_preimage"].encode()
    assert wire.body_hash(envelope) == made["body_sha256"] == envelope["body_sha256"]
    value = envelope["signature"]["value"]
    assert wire.unb64url(value).hex() == made["signature_hex_r_then_s"]
    assert wire.signature_holds(AGENTS["alice@peer.example"], wire.preimage(envelope), value)


@pytest.mark.parametrize("case", vector("envelope-negative")["cases"], ids=lambda case: case["name"])
def test_altered_envelopes(case: dict[str, Any]) -> None:
    """Those whose fate hangs on hash or signature; shape and expiry are the node's to judge."""
    envelope, expected = case["envelope"], case["expect"]
    intact = wire.body_hash(envelope) == envelope.get("body_sha256")
    signature = envelope.get("signature") or {}
    holds = wire.signature_holds(AGENTS["alice@peer.example"], wire.preimage(envelope), signature.get("value"))
    if expected == "body_hash_mismatch":
        assert not intact
    elif expected in ("bad_signature", "missing_signature"):
        assert intact
        assert not holds or signature.get("alg") != "ES256"
    elif expected == "verified":
        assert (intact, holds) == (True, True)


def test_sealed_bodies_of_the_vectors() -> None:
    made, envelope = vector("sealed-intermediates"), vector("envelope-sealed-query")
    node = wire.PrivateKey.from_jwk(AGENTS["node@home.example"])
    assert wire.canonical(wire.opened(envelope, node)) == made["plaintext_utf8"].encode()
    assert wire.body_hash(envelope) == envelope["body_sha256"]
    ephemeral = wire.PrivateKey.from_jwk(made["ephemeral_private_jwk"])
    assert ephemeral.agree(AGENTS["node@home.example"]).hex() == made["aes_key_sha256_of_shared_hex"]
    with pytest.raises(wire.NotOpened):
        wire.opened(envelope, wire.PrivateKey.from_jwk(AGENTS["mallory@peer.example"]))


def test_what_is_sealed_and_signed_opens_and_verifies() -> None:
    ours, theirs = wire.PrivateKey.generate(), wire.PrivateKey.generate()
    envelope = wire.signed(wire.sealed(wire.draft("query", "a@a.test", "b@b.test", {"é": 1}), theirs.jwk), ours)
    signature: Any = envelope["signature"]
    assert wire.signature_holds(ours.jwk, wire.preimage(envelope), signature["value"])
    assert wire.opened(envelope, theirs) == {"é": 1}
    assert envelope["body"] is None
    changed = envelope | {"conversation": "conv_other"}
    assert not wire.signature_holds(ours.jwk, wire.preimage(changed), signature["value"])


@pytest.mark.parametrize("size", [62, 63, 66, 72])
def test_a_signature_has_64_bytes(size: int) -> None:
    assert not wire.signature_holds(wire.PrivateKey.generate().jwk, b"", wire.b64url(b"\1" * size))


def test_a_point_off_the_curve_is_no_key() -> None:
    jwk = wire.PrivateKey.generate().jwk
    with pytest.raises(ValueError, match=r"."):
        wire.public_key(jwk | {"y": jwk["x"]})
