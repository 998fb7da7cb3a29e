"""Project Wycheproof judges our signatures, our agreement and the cipher that seals bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from deedbox.identity.jwk import p256_jwk
from deedbox.identity.keys import Ed25519Public, P256Pair, P256Public
from deedbox.refusals import Refusal

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def groups(name: str) -> list[dict[str, Any]]:
    found = json.loads((VECTORS / f"wycheproof/{name}.json").read_text())
    assert sum(len(group["tests"]) for group in found["testGroups"]) == found["numberOfTests"]
    return list(found["testGroups"])


@pytest.mark.case("fed:B2")
def test_wycheproof_es256() -> None:
    for group in groups("ecdsa_secp256r1_sha256_p1363"):
        wx, wy = (int(group["publicKey"][name], 16).to_bytes(32, "big") for name in ("wx", "wy"))
        key = P256Public.from_jwk(p256_jwk(b"\x04" + wx + wy))
        for test in group["tests"]:
            verified = key.verify(bytes.fromhex(test["sig"]), bytes.fromhex(test["msg"]))
            assert verified == (test["result"] == "valid"), test


def test_wycheproof_ed25519() -> None:
    for group in groups("ed25519"):
        key = Ed25519Public.from_bytes(bytes.fromhex(group["publicKey"]["pk"]))
        for test in group["tests"]:
            verified = key.verify(bytes.fromhex(test["sig"]), bytes.fromhex(test["msg"]))
            assert verified == (test["result"] == "valid"), test


def test_wycheproof_ecdh_with_jwk() -> None:
    agreed = 0
    for test in groups("ecdh_secp256r1_webcrypto")[0]["tests"]:
        pair = P256Pair.from_jwk(test["private"])
        try:
            shared = pair.agree(P256Public.from_jwk(test["public"])).hex()
        except Refusal:
            assert test["result"] != "valid", test
            continue
        assert shared == test["shared"], test
        assert test["result"] != "invalid", test
        agreed += 1
    assert agreed >= 300


def test_wycheproof_ecdh_with_der() -> None:
    agreed = 0
    for test in groups("ecdh_secp256r1")[0]["tests"]:
        try:
            loaded = load_der_public_key(bytes.fromhex(test["public"]))
            assert isinstance(loaded, ec.EllipticCurvePublicKey)
            key = P256Public(loaded.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))
        except (
            ValueError,
            UnsupportedAlgorithm,
            Refusal,
        ):  # an odd encoding, another curve or no point: all but `valid` may be refused
            assert test["result"] != "valid", test
            continue
        assert P256Pair(int(test["private"], 16)).agree(key).hex() == test["shared"], test
        assert test["result"] != "invalid", test
        agreed += 1
    assert agreed >= 300


def test_wycheproof_aes_gcm() -> None:
    refused_nonces = 0
    for group in groups("aes_gcm"):
        for test in group["tests"]:
            key, iv, aad, msg, sealed = (bytes.fromhex(test[name]) for name in ("key", "iv", "aad", "msg", "ct"))
            sealed += bytes.fromhex(test["tag"])
            try:
                opened = AESGCM(key).decrypt(iv, sealed, aad)
            except ValueError:  # a nonce the interface does not take; sealed bodies use 12 bytes and no other
                assert len(iv) < 8 or len(iv) > 128
                refused_nonces += test["result"] == "valid"
            except InvalidTag:
                assert test["result"] != "valid", test
            else:
                assert test["result"] == "valid", test
                assert opened == msg
                assert AESGCM(key).encrypt(iv, msg, aad) == sealed
    assert refused_nonces == 27
