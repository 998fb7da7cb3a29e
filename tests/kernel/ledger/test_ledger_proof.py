"""Proof files: written, read and verified offline, for entries and for events in batches; and nothing else passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbox.ledger.checkpoint import SignedCheckpoint, VerifierKey, WitnessPolicy
from deedbox.ledger.leaf import event_leaf
from deedbox.ledger.merkle import inclusion_proof, root, subtree_root
from deedbox.ledger.proof import SealedEvent, TlogProof, verify_event
from deedbox.refusals import Refusal
from tests.kernel.ledger.paper import ORIGIN, Paper, Witness

W1, W2 = Witness("w1.example", 1), Witness("w2.example", 2)


def path(leaves: list[bytes], index: int) -> tuple[bytes, ...]:
    def node(level: int, at: int) -> bytes:
        return root(leaves[at << level : (at + 1) << level])

    assert subtree_root(0, len(leaves), node) == root(leaves)
    return tuple(inclusion_proof(index, len(leaves), node))


def proof_of(paper: Paper, seq: int, extra: bytes | None = None) -> TlogProof:
    leaves = [entry.leaf for entry in paper.entries]
    return TlogProof(seq - 1, path(leaves, seq - 1), SignedCheckpoint.parse(paper.sign(W1)), extra)


@pytest.fixture(scope="module")
def paper() -> Paper:
    return Paper().fill(20).happen(11)


def test_the_text_of_a_proof(paper: Paper) -> None:
    proof = proof_of(paper, 5, b"more")
    lines = str(proof).splitlines()
    assert lines[:3] == ["c2sp.org/tlog-proof@v1", "extra bW9yZQ==", "index 4"]
    assert [len(line) for line in lines[3:8]] == [44] * 5
    assert lines[8:11] == ["", ORIGIN, "20"]
    assert TlogProof.parse(str(proof)) == proof
    assert TlogProof.parse(str(replace(proof, extra=None))).extra is None


@pytest.mark.parametrize("size", [1, 2, 7, 8, 20])
def test_every_entry_of_a_ledger_is_proved(size: int) -> None:
    paper = Paper().fill(size)
    for seq, entry in enumerate(paper.entries, 1):
        proof = TlogProof.parse(str(proof_of(paper, seq)))
        assert proof.verify(entry.leaf, ORIGIN, [paper.key]).size == size
        assert proof.verify(entry.leaf, ORIGIN, [paper.key], WitnessPolicy((W1.key,), 1)).root == paper.head().root


@given(st.integers(0))
@settings(max_examples=200, deadline=None)
def test_any_changed_letter_fails(which: int) -> None:
    paper = Paper().fill(13)
    text, leaf = str(proof_of(paper, 6)), paper.entries[5].leaf
    at = which % (text.index("— w1.example"))  # a cosignature nobody asked about may be anything
    changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
    with pytest.raises(Refusal, match=r"bad_proof|bad_checkpoint|bad_signature|proof_fails"):
        TlogProof.parse(changed).verify(leaf, ORIGIN, [paper.key])


def test_another_entry_ledger_key_or_too_few_witnesses_fail(paper: Paper) -> None:
    proof = proof_of(paper, 5)
    leaf = paper.entries[4].leaf
    stranger = VerifierKey(ORIGIN, Paper(origin="b.test").fill(1).key.public[::-1])
    attempts: list[tuple[Any, ...]] = [
        (paper.entries[5].leaf, ORIGIN, [paper.key]),
        (leaf, "b.test", [paper.key]),
        (leaf, ORIGIN, [stranger]),
        (leaf, ORIGIN, []),
        (leaf, ORIGIN, [paper.key], WitnessPolicy((W1.key, W2.key), 2)),
        (leaf, ORIGIN, [paper.key], WitnessPolicy((W2.key,), 1)),
    ]
    for attempt in attempts:
        with pytest.raises(Refusal, match="proof_fails"):
            proof.verify(*attempt)


@pytest.mark.parametrize(
    "change",
    [
        ("c2sp.org/tlog-proof@v1", "c2sp.org/tlog-proof@v2"),
        ("index 4", "index 04"),
        ("index 4", "index -4"),
        ("index 4", "index"),
        ("index 4\n", ""),
        ("index 4", f"index {'9' * 5000}"),
        ("index 4\n", "index 4\nAAAA\n"),
        ("index 4\n", "index 4\n!\n"),
        ("index 4\n", "index 4\n" + "A" * 43 + "=\n" * 1),
        ("index 4\n", "index 4\n" + ("A" * 43 + "=\n") * 64),
        ("index 4\n", "extra A\nindex 4\n"),
        ("index 4\n", "index 4\n" + "A" * 600_000),
    ],
)
def test_what_is_no_proof_is_refused(paper: Paper, change: tuple[str, str]) -> None:
    changed = str(proof_of(paper, 5)).replace(*change, 1)
    with pytest.raises(Refusal, match=r"bad_proof|proof_fails"):
        TlogProof.parse(changed).verify(paper.entries[4].leaf, ORIGIN, [paper.key])


@pytest.fixture(scope="module")
def sealed() -> tuple[Paper, TlogProof]:
    paper = Paper().fill(6).happen(11)
    batch = paper.seal()
    paper.fill(4)
    leaves = [event.leaf or b"" for event in paper.events]
    assert batch.salt is not None
    assert batch.payload is not None
    extra = SealedEvent(3, path(leaves, 3), batch.header, batch.salt, batch.payload)
    return paper, proof_of(paper, 7, extra.to_bytes())


def test_an_event_is_proved_through_its_batch(sealed: tuple[Paper, TlogProof]) -> None:
    paper, proof = sealed
    again = TlogProof.parse(str(proof))
    event = paper.events[3]
    assert event.salt is not None
    assert event.event is not None
    checkpoint = verify_event(again, event_leaf(event.salt, event.event), ORIGIN, [paper.key])
    assert checkpoint.size == 11


def test_no_other_event_or_batch_is_proved(sealed: tuple[Paper, TlogProof]) -> None:
    paper, proof = sealed
    leaf = paper.events[3].leaf or b""
    shown = SealedEvent.from_bytes(proof.extra or b"")
    other = paper.entries[2]
    assert other.salt is not None
    assert other.payload is not None
    spoilt = [
        replace(shown, index=4),
        replace(shown, path=shown.path[:-1]),
        replace(shown, salt=bytes(32)),
        replace(shown, payload=shown.payload.replace(b'"count":11', b'"count":12')),
        replace(shown, header=other.header, salt=other.salt, payload=other.payload),
        replace(shown, header=shown.header.replace(b"batch", b"batsh")),
    ]
    for extra in spoilt:
        with pytest.raises(Refusal, match="proof_fails"):
            verify_event(replace(proof, extra=extra.to_bytes()), leaf, ORIGIN, [paper.key])
    with pytest.raises(Refusal, match="proof_fails"):
        verify_event(proof, paper.events[4].leaf or b"", ORIGIN, [paper.key])
    with pytest.raises(Refusal, match="proof_fails"):
        verify_event(replace(proof, extra=None), leaf, ORIGIN, [paper.key])


def test_a_batch_of_another_ledger_is_not_this_one(sealed: tuple[Paper, TlogProof]) -> None:
    paper, proof = sealed
    foreign = Paper().fill(6).happen(2)
    batch = foreign.seal()
    leaves = [event.leaf or b"" for event in foreign.events]
    extra = SealedEvent(0, path(leaves, 0), batch.header, batch.salt or b"", batch.payload or b"")
    with pytest.raises(Refusal, match="proof_fails"):
        verify_event(replace(proof, extra=extra.to_bytes()), leaves[0], ORIGIN, [paper.key])


@pytest.mark.parametrize("extra", [b"", b"{}", b"[]", b"null", b'{"path":7}', b"\xff", b"[" * 100_000])
def test_an_extra_line_of_something_else_is_refused(sealed: tuple[Paper, TlogProof], extra: bytes) -> None:
    paper, proof = sealed
    with pytest.raises(Refusal, match="bad_proof"):
        verify_event(replace(proof, extra=extra), paper.events[3].leaf or b"", ORIGIN, [paper.key])
