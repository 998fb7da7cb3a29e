"""The offline verifier against ledgers cut, rewritten, spoilt and redacted; each read from both kinds of file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from deedbox.ledger.checkpoint import SignedCheckpoint, VerifierKey, WitnessPolicy, sign_checkpoint
from deedbox.ledger.merkle import EMPTY_ROOT
from deedbox.ledger.verify import State, Trust, Witnessed, verify
from tests.kernel.ledger.paper import Paper, Witness, check

W1, W2, W3 = (Witness(f"w{number}.example", number) for number in (1, 2, 3))


def test_a_good_ledger_is_consistent_and_says_what_was_not_checked(paper: Paper, path: Path) -> None:
    verdict = check(paper, path)
    assert verdict.state is State.UNPROVEN
    assert verdict.good
    assert (verdict.size, verdict.root) == (300, paper.head().root)
    assert verdict.first_bad is verdict.witnessed_size is None
    counts = verdict.counts
    assert (counts.entries, counts.payloads, counts.payloads_absent) == (300, 300, 0)
    assert (counts.batches, counts.batches_without_events) == (2, 0)
    assert (counts.events, counts.events_absent, counts.events_unsealed) == (25, 0, 3)
    assert (counts.checkpoints, counts.checkpoints_signed, counts.checkpoints_cosigned) == (3, 3, 0)
    assert any(line.startswith("the length") for line in verdict.not_checked)
    assert "3 events that no batch has sealed yet" in verdict.not_checked
    assert str(verdict).startswith("consistent, length unproven")


@pytest.mark.parametrize("size", [1, 2, 99, 100, 101, 255, 256, 257, 299, 300])
def test_a_head_kept_elsewhere_proves_the_length(paper: Paper, path: Path, size: int) -> None:
    verdict = check(paper, path, Trust(heads=(paper.head(size), paper.head(1))))
    assert (verdict.state, verdict.witnessed_size) == (State.WITNESSED, size)
    assert any("beyond entry" in line for line in verdict.not_checked) == (size < 300)
    assert verdict.as_json()["state"] == "valid to a witnessed size"


def test_cosigned_checkpoints_prove_the_length_by_policy(paper: Paper, path: Path) -> None:
    for keys, needed, proven in (((W1, W2, W3), 2, True), ((W1, W2, W3), 3, False), ((W3,), 1, False)):
        policy = WitnessPolicy(tuple(witness.key for witness in keys), needed)
        verdict = check(paper, path, Trust(keys=(paper.key,), witnesses=policy))
        assert verdict.witnessed_size == (256 if proven else None)
        assert verdict.counts.checkpoints_cosigned == proven


def test_progress_is_told(paper: Paper, path: Path) -> None:
    told: list[int] = []
    verify(paper.database(path), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 300


@pytest.mark.case("fed:D3")
@pytest.mark.parametrize("gone", [1, 44, 45, 150, 299, 300])
def test_entries_cut_off_the_end(paper: Paper, path: Path, gone: int) -> None:
    seen, cosigned = paper.head(), SignedCheckpoint.parse(paper.notes[256])
    del paper.entries[-gone:]
    paper.notes = {size: note for size, note in paper.notes.items() if size <= len(paper.entries)}

    alone = verify(paper.database(path), Trust(keys=(paper.key,)))
    assert alone.state is State.UNPROVEN
    assert any(line.startswith("the length") for line in alone.not_checked)

    verdict = verify(paper.database(path), Trust(keys=(paper.key,), heads=(seen,)))
    assert (verdict.state, verdict.witnessed_size, verdict.first_bad) == (State.TRUNCATED, 300, 301 - gone)
    assert not verdict.good
    assert str(verdict) == f"truncated (witness saw 300, there are {300 - gone})"

    kept = Witnessed(256, cosigned.checkpoint.root, "a receipt")
    assert (verify(paper.database(path), Trust(heads=(kept,))).state is State.TRUNCATED) == (gone > 44)


@pytest.mark.case("fed:D3")
def test_entries_cut_off_while_their_checkpoint_stayed(paper: Paper, path: Path) -> None:
    del paper.entries[290:]
    verdict = check(paper, path)
    assert (verdict.state, verdict.witnessed_size, verdict.first_bad) == (State.TRUNCATED, 300, 291)


def test_an_empty_ledger_is_not_proved_by_an_empty_head(path: Path) -> None:
    paper = Paper()
    assert check(paper, path).state is State.UNPROVEN
    paper.sign(W1)
    trust = Trust(heads=(Witnessed(0, EMPTY_ROOT),), witnesses=WitnessPolicy((W1.key,), 1))
    assert check(paper, path, trust).state is State.UNPROVEN
    assert check(paper, path, Trust(heads=(Witnessed(0, bytes(32)),))).state is State.FORKED


@pytest.mark.case("fed:D4")
@pytest.mark.parametrize("gone", [1, 100, 299])
def test_entries_cut_off_the_beginning(paper: Paper, path: Path, gone: int) -> None:
    kept = paper.entries[gone:]
    source = paper.database(path)
    with sqlite3.connect(path) as connection:
        connection.execute("delete from ledger_entry where seq <= ?", (gone,))
    connection.close()
    verdict = verify(source)
    assert (verdict.state, verdict.first_bad, verdict.size) == (State.BROKEN, 1, 0)
    assert f"missing: the next one is {gone + 1}" in verdict.reason
    paper.entries = kept  # the same, with the rows numbered anew
    assert check(paper, path).first_bad == 1


def test_a_first_entry_that_follows_something(path: Path) -> None:
    paper = Paper()
    paper.add(prev=b"\x01" * 32)
    assert check(paper, path).first_bad == 1


def test_a_ledger_rewritten_from_an_entry_on_is_forked(paper: Paper, path: Path) -> None:
    head = paper.head(200)
    paper.events, paper.notes = [], {}
    paper.rewrite(150, {"innocent": True})
    assert check(paper, path).state is State.UNPROVEN
    verdict = check(paper, path, Trust(heads=(paper.head(100), head)))
    assert (verdict.state, verdict.witnessed_size, verdict.size) == (State.FORKED, 200, 200)
    assert verdict.root == paper.head(200).root != head.root
    assert "rewritten after entry 100" in verdict.reason


def test_a_signed_checkpoint_over_another_root_is_a_fork(paper: Paper, path: Path) -> None:
    paper.notes[300] = sign_checkpoint("a.test", 300, bytes(32), paper.key.public, paper.signer)
    assert check(paper, path).state is State.FORKED
    paper.notes[300] = sign_checkpoint("a.test", 300, bytes(32), paper.key.public, lambda _: bytes(64))
    verdict = check(paper, path)
    assert (verdict.state, verdict.reason) == (State.BROKEN, "the signature in the name of a.test does not hold")


def test_checkpoints_that_nobody_known_signed(paper: Paper, path: Path) -> None:
    other = VerifierKey("a.test", Paper(origin="b.test").key.public[::-1])
    verdict = verify(paper.database(path), Trust(keys=(other,)))
    assert verdict.state is State.UNPROVEN
    assert verdict.counts.checkpoints_signed == 0
    assert any(line.startswith("who signed 3 of 3 checkpoints") for line in verdict.not_checked)
    paper.notes[300] = sign_checkpoint("a.test", 300, bytes(32), paper.key.public, paper.signer)
    assert verify(paper.database(path), Trust(keys=(other,))).state is State.BROKEN


@pytest.mark.parametrize("note", ["", "nonsense", "a.test\n300\n"])
def test_a_checkpoint_that_cannot_be_read(paper: Paper, path: Path, note: str) -> None:
    paper.notes[300] = note
    assert check(paper, path).state is State.BROKEN


def test_a_checkpoint_of_another_ledger(paper: Paper, path: Path) -> None:
    assert check(paper, path, Trust(origin="b.test")).state is State.BROKEN
    paper.notes[300] = sign_checkpoint("b.test", 300, paper.head().root, paper.key.public, paper.signer)
    assert check(paper, path).state is State.BROKEN
