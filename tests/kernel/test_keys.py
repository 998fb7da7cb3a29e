"""Keys: what is read as one, what a signature must be, and the files private keys live in."""

from __future__ import annotations

import json
import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deedbox.canonical import b64url, canonical, sha256_digest, unb64url
from deedbox.identity import keys as keys_module
from deedbox.identity.jwk import ed25519_jwk, thumbprint
from deedbox.identity.keys import Ed25519Pair, Ed25519Public, P256Pair, P256Public, load_pair, store_pair
from deedbox.refusals import Fault, Refusal

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
AGENTS = json.loads((VECTORS / "oip/keys.json").read_text())["agents"]
ALICE = AGENTS["alice@peer.example"]
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
FIELD_25519 = 2**255 - 19


def published(jwk: dict[str, str]) -> dict[str, str]:
    return {name: member for name, member in jwk.items() if name != "d"}


def code_of(read: Any, *args: Any) -> str:
    with pytest.raises(Refusal) as refused:
        read(*args)
    return refused.value.code


# --- P-256 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_the_keys_of_the_specification(agent: str) -> None:
    pair = P256Pair.from_jwk(AGENTS[agent])
    assert pair.private_jwk() == AGENTS[agent]
    assert pair.public == P256Public.from_jwk(published(AGENTS[agent]))
    assert pair.public.jwk == published(AGENTS[agent])


def test_other_members_of_a_jwk_are_ignored() -> None:
    extra = {"use": "sig", "alg": "none", "kid": "x", "key_ops": [], "ext": True}
    assert P256Public.from_jwk(published(ALICE) | extra).jwk == published(ALICE)


def test_a_published_private_key_is_an_alarm() -> None:
    assert code_of(P256Public.from_jwk, ALICE) == "private_key_published"
    assert code_of(P256Public.from_jwk, published(ALICE) | {"d": None}) == "private_key_published"
    assert code_of(Ed25519Public.from_jwk, Ed25519Pair(bytes(32)).private_jwk()) == "private_key_published"


@pytest.mark.parametrize(
    "change",
    [
        {"kty": "RSA"},
        {"kty": "OKP"},
        {"crv": "P-384"},
        {"crv": None},
        {"x": ALICE["y"]},
        {"x": ALICE["x"][:-1]},
        {"x": ALICE["x"] + "A"},
        {"x": ALICE["x"][:-1] + "="},
        {"x": ALICE["x"][:-1] + "l"},
        {"x": "+" + ALICE["x"][1:]},
        {"y": 7},
        {"y": b64url(b"\xff" * 32)},
        {"x": b64url(bytes(32)), "y": b64url(bytes(32))},
    ],
    ids=str,
)
def test_what_is_no_p256_key(change: dict[str, Any]) -> None:
    assert code_of(P256Public.from_jwk, published(ALICE) | change) == "bad_key"
    assert code_of(P256Pair.from_jwk, ALICE | change) == "bad_key"


@pytest.mark.parametrize("jwk", [None, [], "x", 7, {}])
def test_what_is_no_jwk(jwk: Any) -> None:
    for read in (P256Public.from_jwk, P256Pair.from_jwk, Ed25519Public.from_jwk, Ed25519Pair.from_jwk):
        assert code_of(read, jwk) == "bad_key"


def test_the_two_halves_must_belong_together() -> None:
    other = AGENTS["mallory@peer.example"]
    assert code_of(P256Pair.from_jwk, ALICE | {"d": other["d"]}) == "bad_key"
    assert code_of(P256Pair.from_jwk, ALICE | {"d": b64url(bytes(32))}) == "bad_key"
    assert code_of(P256Pair.from_jwk, ALICE | {"d": b64url(ORDER.to_bytes(32, "big"))}) == "bad_key"
    assert code_of(Ed25519Pair.from_jwk, Ed25519Pair(bytes(32)).private_jwk() | {"d": b64url(b"\1" * 32)}) == "bad_key"


def test_coordinates_keep_their_leading_zeros() -> None:
    for scalar in range(1, 2000):
        pair = P256Pair(scalar)
        if pair.public.point[1] == 0:
            break
    else:
        pytest.fail("no key with a leading zero among the first 2000")
    assert {len(pair.public.jwk[name]) for name in ("x", "y")} == {43}
    assert P256Pair.from_jwk(pair.private_jwk()).public == pair.public


def test_thumbprints_are_rfc_7638_over_our_own_encoding() -> None:
    required = {"crv": "P-256", "kty": "EC", "x": ALICE["x"], "y": ALICE["y"]}
    expected = b64url(sha256_digest(canonical(required)))
    assert P256Public.from_jwk(published(ALICE) | {"kid": "other"}).thumbprint == expected
    assert len(expected) == 43


def test_the_thumbprint_published_for_ed25519() -> None:
    """RFC 8037, appendices A.2 and A.3."""
    key = Ed25519Public.from_jwk({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
    assert key.thumbprint == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    pair = Ed25519Pair.from_seed(unb64url("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"))
    assert pair.public == key
    assert thumbprint(ed25519_jwk(key.point)) == key.thumbprint


def test_signatures_are_deterministic_and_64_bytes() -> None:
    """RFC 6979, A.2.5: P-256 with SHA-256, message `sample`."""
    pair = P256Pair(0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721)
    signature = pair.sign(b"sample")
    assert signature.hex() == (
        "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
        "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"
    )
    assert signature == pair.sign(b"sample")
    assert pair.public.verify(signature, b"sample")
    assert not pair.public.verify(signature, b"Sample")


@pytest.mark.case("fed:B1")
def test_both_forms_of_s_verify() -> None:
    pair = P256Pair.from_jwk(ALICE)
    signature = pair.sign(b"text")
    mirrored = (ORDER - int.from_bytes(signature[32:], "big")).to_bytes(32, "big")
    assert mirrored != signature[32:]
    assert pair.public.verify(signature[:32] + mirrored, b"text")


@pytest.mark.case("fed:B2")
def test_a_signature_is_64_bytes_and_no_other_size() -> None:
    pair, edward = P256Pair.from_jwk(ALICE), Ed25519Pair(bytes(32))
    for size in (0, 62, 63, 65, 66, 72, 128):
        assert not pair.public.verify(pair.sign(b"")[:size].ljust(size, b"\0"), b"")
        assert not edward.public.verify(edward.sign(b"")[:size].ljust(size, b"\0"), b"")


def test_agreement_is_mutual() -> None:
    one, other = P256Pair.generate(), P256Pair.generate()
    assert one.agree(other.public) == other.agree(one.public)
    assert len(one.agree(other.public)) == 32


def test_generation_takes_its_randomness_from_outside() -> None:
    for make in (P256Pair.generate, Ed25519Pair.generate):
        first, second = (make(random.Random(7).randbytes) for _ in range(2))
        assert first.private_jwk() == second.private_jwk()
        assert make().public != make().public


def test_keys_read_once_are_kept_and_bounded() -> None:
    assert P256Public.from_jwk(published(ALICE)) is P256Public.from_jwk(published(ALICE))
    assert keys_module._p256_public.cache_info().maxsize == 4096
    assert keys_module._ed25519_public.cache_info().maxsize == 4096


def test_nothing_printed_shows_a_private_key() -> None:
    for pair in (P256Pair.from_jwk(ALICE), Ed25519Pair(bytes(32))):
        secret = pair.private_jwk()["d"]
        assert secret not in repr(pair) + str(pair) + repr(pair.public)
        assert pair.public.thumbprint in repr(pair)
    assert len({P256Pair(1).public, P256Pair(1).public, Ed25519Pair(bytes(32)).public}) == 2


# --- Ed25519 -----------------------------------------------------------------------------------------------------

ORDER_EIGHT = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
TORSION = {
    "identity": 1,
    "order 2": FIELD_25519 - 1,
    "order 4": 0,
    "order 8": ORDER_EIGHT,
    "order 8, negated": FIELD_25519 - ORDER_EIGHT,
}


@pytest.mark.case("fed:B3")
@pytest.mark.parametrize("name", sorted(TORSION))
@pytest.mark.parametrize("sign", [0, 1])
def test_points_of_small_order_are_no_keys(name: str, sign: int) -> None:
    point = (TORSION[name] | sign << 255).to_bytes(32, "little")
    assert code_of(Ed25519Public.from_bytes, point) == "weak_key"
    assert code_of(Ed25519Public.from_jwk, ed25519_jwk(point)) == "weak_key"


@pytest.mark.case("fed:B3")
@pytest.mark.parametrize("name", sorted(TORSION))
def test_those_points_are_a_danger_where_nobody_looks(name: str) -> None:
    """A verifier that takes any point accepts one fixed signature for every, or every eighth, message."""
    lenient = Ed25519PublicKey.from_public_bytes(TORSION[name].to_bytes(32, "little"))

    def fits(message: bytes) -> bool:
        try:
            lenient.verify(b"\x01" + bytes(63), message)
        except InvalidSignature:
            return False
        return True

    assert sum(fits(bytes([number])) for number in range(200)) >= 8


@pytest.mark.case("fed:B3")
@pytest.mark.parametrize("sign", [0, 1])
def test_other_spellings_of_a_point_are_no_keys(sign: int) -> None:
    for small in range(19):
        point = (FIELD_25519 + small | sign << 255).to_bytes(32, "little")
        assert code_of(Ed25519Public.from_bytes, point) == "weak_key"


@pytest.mark.case("fed:B3")
def test_the_signature_that_fits_every_message_finds_no_key() -> None:
    assert code_of(Ed25519Public.from_bytes, b"\x01" + bytes(31)) == "weak_key"
    assert not Ed25519Pair(bytes(32)).public.verify(b"\x01" + bytes(63), b"any message")


def test_what_is_no_ed25519_key() -> None:
    assert code_of(Ed25519Public.from_bytes, bytes(31)) == "bad_key"
    assert code_of(Ed25519Pair.from_seed, bytes(33)) == "bad_key"
    assert code_of(Ed25519Public.from_jwk, published(ALICE)) == "bad_key"
    off_curve = (2).to_bytes(32, "little")
    assert code_of(Ed25519Public.from_bytes, off_curve) == "weak_key"


def test_ed25519_signs_and_verifies() -> None:
    pair = Ed25519Pair.generate()
    signature = pair.sign(b"text")
    assert pair.public.verify(signature, b"text")
    assert not pair.public.verify(signature, b"Text")
    assert Ed25519Pair.from_jwk(pair.private_jwk()).sign(b"text") == signature


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [P256Pair.from_jwk(ALICE), Ed25519Pair(bytes(32))], ids=["P-256", "Ed25519"])
def test_a_key_file_is_its_owners_alone(tmp_path: Path, pair: P256Pair | Ed25519Pair) -> None:
    path = tmp_path / "keys" / "node.jwk"
    umask = os.umask(0)
    try:
        store_pair(path, pair)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load_pair(path).private_jwk() == pair.private_jwk()
    assert code_of(store_pair, path, P256Pair.generate()) == "key_file_exists"
    assert load_pair(path).private_jwk() == pair.private_jwk()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_file_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys" / "node.jwk"
    store_pair(path, P256Pair.from_jwk(ALICE))
    path.chmod(mode)
    with pytest.raises(Refusal) as refused:
        load_pair(path)
    assert refused.value.code == "key_file_exposed"
    assert refused.value.fault is Fault.OURS
    assert refused.value.next_step == f"chmod 600 {path}"
    assert ALICE["d"] not in f"{refused.value}{refused.value.next_step}"


def test_a_folder_others_may_enter_takes_no_key(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    assert code_of(store_pair, folder / "node.jwk", P256Pair.from_jwk(ALICE)) == "key_file_exposed"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"kty":"EC","kty":"EC"}', b"{" * 5000, b"\xff"])
def test_a_key_file_that_holds_no_key(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.jwk"
    path.write_bytes(content)
    path.chmod(0o600)
    assert code_of(load_pair, path) == "bad_key"
    assert code_of(load_pair, tmp_path / "other.jwk") == "key_file_missing"
