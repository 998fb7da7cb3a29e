"""Signed heads: the published examples, signatures by another library, and everything that is no checkpoint."""

from __future__ import annotations

import base64

import pytest
from nacl.signing import SigningKey, VerifyKey

from deedbox.ledger.checkpoint import (
    COSIGNATURE_V1,
    LedgerCheckpoint,
    NoteSignature,
    SignedCheckpoint,
    VerifierKey,
    WitnessPolicy,
    cosign,
    sign_checkpoint,
)
from deedbox.refusals import Refusal
from tests.kernel.ledger.paper import Witness

ROOT = bytes(range(32))
SECRET = SigningKey(b"\x07" * 32)
KEY = VerifierKey("a.test", bytes(SECRET.verify_key))
W1, W2, W3 = (Witness(f"w{number}.example", number) for number in (1, 2, 3))

# From the pages of C2SP (signed-note, tlog-cosignature); the examples are facts of the format.
VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
VKEY_SIGNATURE = "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
BEHIND_THE_SOFA = """example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5\
/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2\
oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
"""


def sign(message: bytes) -> bytes:
    return SECRET.sign(message).signature


def note(size: int = 42) -> str:
    return sign_checkpoint("a.test", size, ROOT, KEY.public, sign)


def test_a_verifier_key_of_the_page() -> None:
    key = VerifierKey.parse(VKEY)
    assert str(key) == VKEY
    assert (key.name, key.algorithm, key.key_id.hex()) == ("example.com/foo", 1, "530d903a")
    line = NoteSignature.parse(f"— example.com/foo {VKEY_SIGNATURE}")
    assert line.key_id == key.key_id
    VerifyKey(key.public).verify(b"This is an example message.\n", line.blob)


def test_a_checkpoint_of_the_page() -> None:
    signed = SignedCheckpoint.parse(BEHIND_THE_SOFA)
    assert str(signed) == BEHIND_THE_SOFA
    assert signed.checkpoint.origin == "example.com/behind-the-sofa"
    assert signed.checkpoint.size == 20_852_163
    assert int.from_bytes(signed.signatures[1].blob[:8], "big") == 1_679_315_147
    assert signed.signers([KEY, W1.key]) == []


def test_what_we_sign_is_the_three_lines() -> None:
    encoded = base64.b64encode(KEY.key_id + sign(f"a.test\n42\n{base64.b64encode(ROOT).decode()}\n".encode())).decode()
    assert note() == f"a.test\n42\n{base64.b64encode(ROOT).decode()}\n\n— a.test {encoded}\n"
    (signer,) = SignedCheckpoint.parse(note()).signers([KEY])
    assert (signer.key, signer.timestamp) == (KEY, None)


def test_a_cosignature_has_its_time_signed() -> None:
    signed = SignedCheckpoint.parse(W1.cosign(note(), 1_700_000_000))
    assert [(signer.key, signer.timestamp) for signer in signed.signers([W1.key])] == [(W1.key, 1_700_000_000)]
    log, line = signed.signatures
    later = (int.from_bytes(line.blob[:8], "big") + 1).to_bytes(8, "big")
    moved = SignedCheckpoint(signed.checkpoint, (log, NoteSignature(line.name, line.key_id, later + line.blob[8:])))
    with pytest.raises(Refusal, match="bad_signature"):
        moved.signers([W1.key])


def test_any_flipped_bit_fails_or_cannot_be_read() -> None:
    raw = W1.cosign(note()).encode()
    for at in range(len(raw)):
        spoilt = raw[:at] + bytes([raw[at] ^ 1 << at % 7]) + raw[at + 1 :]
        try:
            signers = SignedCheckpoint.parse(spoilt).signers([KEY, W1.key])
        except Refusal:
            continue
        assert len(signers) < 2


def test_unknown_keys_are_ignored_even_with_a_known_name_or_id() -> None:
    stranger = VerifierKey("a.test", bytes(SigningKey(b"\x08" * 32).verify_key))
    assert SignedCheckpoint.parse(note()).signers([stranger]) == []
    signed = SignedCheckpoint.parse(note())
    other_name = NoteSignature("b.test", KEY.key_id, b"x" * 64)
    assert len(signed.also(other_name).signers([KEY])) == 1


def test_one_bad_line_in_a_known_name_spoils_the_note() -> None:
    signed = SignedCheckpoint.parse(note())
    for blob in (b"", b"x", b"x" * 64, b"x" * 3000):
        with pytest.raises(Refusal, match="bad_signature"):
            signed.also(NoteSignature(KEY.name, KEY.key_id, blob)).signers([KEY])


def test_an_algorithm_we_do_not_know_is_kept_and_not_believed() -> None:
    future = VerifierKey("w.example", b"k" * 1312, 0x06)
    signed = SignedCheckpoint.parse(note()).also(NoteSignature("w.example", future.key_id, b"s" * 2428))
    assert SignedCheckpoint.parse(str(signed)) == signed
    assert [signer.key for signer in signed.signers([KEY, future])] == [KEY]
    assert VerifierKey.parse(str(future)) == future


def test_a_policy_counts_witnesses_not_lines() -> None:
    policy = WitnessPolicy((W1.key, W2.key, W3.key), 2)
    once = W1.cosign(note())
    assert not policy.satisfied(SignedCheckpoint.parse(note()))
    assert not policy.satisfied(SignedCheckpoint.parse(W1.cosign(once, 5)))
    assert policy.satisfied(SignedCheckpoint.parse(W3.cosign(once)))
    two_names = WitnessPolicy((W1.key, VerifierKey("w1b.example", W1.key.public, COSIGNATURE_V1), W2.key), 2)
    assert not two_names.satisfied(SignedCheckpoint.parse(Witness("w1b.example", 1).cosign(once)))


@pytest.mark.parametrize("needed", [0, 2])
def test_a_policy_that_nobody_or_everybody_meets_is_refused(needed: int) -> None:
    with pytest.raises(Refusal, match="bad_verifier_key"):
        WitnessPolicy((W1.key,), needed)
    with pytest.raises(Refusal, match="bad_verifier_key"):
        WitnessPolicy((KEY,), 1)
    again = VerifierKey("w1b.example", W1.key.public, COSIGNATURE_V1)
    with pytest.raises(Refusal, match="bad_verifier_key"):
        WitnessPolicy((W1.key, again), 2)


def test_a_log_key_cannot_cosign() -> None:
    with pytest.raises(Refusal, match="bad_verifier_key"):
        cosign(LedgerCheckpoint("a.test", 1, ROOT), KEY, 1, sign)


def test_extension_lines_are_signed() -> None:
    checkpoint = LedgerCheckpoint("a.test", 1, ROOT, ("more", "and more"))
    assert LedgerCheckpoint.parse(checkpoint.body()) == checkpoint
    line = NoteSignature(KEY.name, KEY.key_id, sign(checkpoint.body().encode()))
    assert SignedCheckpoint.parse(str(SignedCheckpoint(checkpoint, (line,)))).signers([KEY])
    with pytest.raises(Refusal, match="bad_signature"):
        SignedCheckpoint(LedgerCheckpoint("a.test", 1, ROOT, ("more",)), (line,)).signers([KEY])


GOOD = note()


@pytest.mark.parametrize(
    "spoilt",
    [
        "",
        "\n",
        GOOD[:-1],
        GOOD.replace("\n\n", "\n"),
        GOOD.replace("\n42\n", "\n042\n"),
        GOOD.replace("\n42\n", "\n-1\n"),
        GOOD.replace("\n42\n", "\n4 2\n"),
        GOOD.replace("\n42\n", "\n٤٢\n"),
        GOOD.replace("\n42\n", f"\n{2**63}\n"),
        GOOD.replace("\n42\n", f"\n{'9' * 5000}\n"),
        GOOD.replace("\n42\n", "\n"),
        GOOD.replace("Hh8=", "Hh9="),
        GOOD.replace("Hh8=", "Hh8"),
        GOOD.replace("a.test\n42", "\n42"),
        GOOD.replace("a.test\n42", "a\t.test\n42"),
        GOOD.replace("a.test\n42", "a.test\r\n42"),
        GOOD.replace("— a.test", "- a.test"),
        GOOD.replace("— a.test", "—a.test"),
        GOOD.replace("— a.test", "— "),
        GOOD.replace("— a.test", "— a+test"),
        GOOD.replace("— a.test", "— a\u2003test"),
        GOOD + "\n",
        GOOD + "trailing\n",
        GOOD[: GOOD.index("—")],
        GOOD.replace("\n\n", "\n\n\n"),
        GOOD + GOOD.splitlines(keepends=True)[-1] * 64,
        "a.test\n42\n" + "x" * 300_000,
        "\ud800" + GOOD,
    ],
)
def test_what_is_no_checkpoint_is_refused(spoilt: str) -> None:
    assert spoilt != GOOD
    with pytest.raises(Refusal, match="bad_checkpoint"):
        SignedCheckpoint.parse(spoilt)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(Refusal, match="bad_checkpoint"):
        SignedCheckpoint.parse(b"\xff" + GOOD.encode())


@pytest.mark.parametrize(
    "text",
    ["", "a", "a+b", VKEY[:-4], VKEY.replace("530d903a", "530d903b"), VKEY.replace("foo", "f o"), "a+00000000+AQ=="],
)
def test_what_is_no_verifier_key_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="bad_verifier_key"):
        VerifierKey.parse(text)
