"""The chain replayed: the first bad entry is named, what is redacted is counted, and speed changes no answer."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbox.ledger.checkpoint import VerifierKey
from deedbox.ledger.leaf import NO_ENTRY
from deedbox.ledger.merkle import leaf_hash
from deedbox.ledger.records import Entries, EntryRow, ExportFile, Record, SqliteFile
from deedbox.ledger.replay import BadEntry, Chain
from deedbox.ledger.verify import State, Trust, verify
from tests.kernel.ledger.paper import Paper, check

Spoil = Callable[[Paper], object]


def header(paper: Paper, old: bytes, new: bytes) -> None:
    entry = paper.entries[99]
    assert old in entry.header
    entry.header = entry.header.replace(old, new, 1)
    entry.leaf = leaf_hash(entry.header)


def upper(paper: Paper) -> None:
    link = paper.entries[98].leaf.hex().encode()
    header(paper, link, link.upper())


def part(name: str, value: object) -> Spoil:
    """Entry 100 with one of its parts replaced."""
    return lambda paper: setattr(paper.entries[99], name, value)


SPOILT: dict[str, tuple[Spoil, int]] = {
    "a hole": (lambda paper: paper.entries.pop(99), 100),
    "a copy": (lambda paper: paper.entries.insert(99, paper.entries[98]), 100),
    "two change places": (lambda paper: paper.entries.insert(99, paper.entries.pop(100)), 100),
    "another kind, hashed anew": (lambda paper: header(paper, b"capability.use", b"capability.mint"), 101),
    "another time, hashed anew": (lambda paper: header(paper, b"2026", b"2025"), 101),
    "another number": (lambda paper: header(paper, b'"seq":100', b'"seq":101'), 100),
    "another link": (lambda paper: header(paper, b'"prev":"', b'"prev":"0'), 100),
    "a space": (lambda paper: header(paper, b",", b", "), 100),
    "upper-case digits": (upper, 100),
    "a member more": (lambda paper: header(paper, b'"v":1', b'"v":1,"w":1'), 100),
    "not JSON": (lambda paper: header(paper, b"{", b"["), 100),
    "not UTF-8": (lambda paper: header(paper, b"capability", b"\xff"), 100),
    "no header": (part("header", b""), 100),
    "another leaf": (part("leaf", bytes(32)), 100),
    "another payload": (part("payload", b"{}"), 100),
    "another salt": (part("salt", bytes(32)), 100),
    "no salt": (part("salt", None), 100),
    "a short salt": (part("salt", b"short"), 100),
}


@pytest.mark.parametrize(("spoil", "first_bad"), SPOILT.values(), ids=SPOILT)
def test_the_first_bad_entry_is_named(paper: Paper, path: Path, spoil: Spoil, first_bad: int) -> None:
    head = paper.head()
    paper.notes.clear()
    spoil(paper)
    verdict = verify(paper.database(path), Trust(keys=(paper.key,), heads=(head,)))
    assert (verdict.state, verdict.first_bad, verdict.size) == (State.BROKEN, first_bad, first_bad - 1)
    assert verdict.reason.startswith(f"entry {first_bad}: ")
    assert verdict.root is None
    assert f"anything after entry {first_bad - 1}" in verdict.not_checked


def test_salt_and_payload_cannot_trade_bytes(paper: Paper, path: Path) -> None:
    entry = paper.entries[99]
    assert entry.salt is not None
    assert entry.payload is not None
    entry.salt, entry.payload = entry.salt + entry.payload[:1], entry.payload[1:]
    assert check(paper, path).first_bad == 100


@pytest.mark.case("fed:D8")
def test_redacted_payloads_are_counted_and_prove_nothing_wrong(paper: Paper, path: Path) -> None:
    for entry in paper.entries[10:20]:
        entry.salt = entry.payload = None
    verdict = check(paper, path, Trust(heads=(paper.head(),)))
    assert verdict.state is State.WITNESSED
    assert (verdict.counts.payloads, verdict.counts.payloads_absent) == (290, 10)
    assert "10 payloads: redacted or left out" in verdict.not_checked


def test_names_shown_in_an_export_are_held_against_their_commitments(paper: Paper, path: Path) -> None:
    lines = paper.export(path).splitlines(keepends=True)

    def shown(actor: str) -> ExportFile:
        named = lines[5].replace(b'{"entry"', f'{{"actor":"{actor}","entry"'.encode())
        return ExportFile(BytesIO(b"".join([*lines[:5], named, *lines[6:]])))

    assert verify(shown("ann@a.test")).counts.names == 1
    for wrong in ("bob@a.test", ""):
        verdict = verify(shown(wrong))
        assert (verdict.state, verdict.first_bad) == (State.BROKEN, 5)
        assert "actor" in verdict.reason


def test_payloads_in_another_form_are_found_when_asked(path: Path) -> None:
    paper = Paper().fill(3)
    paper.add(body=b'{ "a": 1 }')
    paper.add({"large": 1e20, "small": 1e-7, "text": "é\u2028"})
    assert check(paper, path).state is State.UNPROVEN
    assert check(paper, path, Trust(payload_form=True)).first_bad == 4
    paper = Paper().fill(3)
    paper.add({"large": 1e20, "small": 1e-7, "text": "é\u2028"})
    assert check(paper, path, Trust(payload_form=True)).state is State.UNPROVEN


def test_the_chain_alone_reads_no_payloads(paper: Paper, path: Path) -> None:
    paper.entries[5].payload = b"spoilt"
    paper.database(path)
    verdict = verify(SqliteFile(path, payloads=False), Trust(heads=(paper.head(),)))
    assert verdict.state is State.WITNESSED
    assert (verdict.counts.payloads, verdict.counts.payloads_absent) == (0, 300)


def mended(paper: Paper, index: int) -> list[EntryRow]:
    """The rows after a change at an index, hashed and chained anew from there, as a forger would."""
    leaf, rows = NO_ENTRY, []
    for at, entry in enumerate(paper.entries):
        if at > index:
            link = entry.header.index(b'"prev":"') + 8
            entry.header = entry.header[:link] + leaf.hex().encode() + entry.header[link + 64 :]
        leaf = leaf_hash(entry.header)
        rows.append((at + 1, entry.header, leaf, entry.salt, entry.payload))
    return rows


@given(st.integers(0, 7), st.integers(0), st.integers(1, 255))
@settings(max_examples=400, deadline=None)
def test_a_run_is_judged_together_as_it_is_one_by_one(index: int, at: int, change: int) -> None:
    paper = Paper().fill(8)
    spoilt = bytearray(paper.entries[index].header)
    spoilt[at % len(spoilt)] ^= change
    paper.entries[index].header = bytes(spoilt)
    rows = mended(paper, index)
    outcomes: list[object] = []
    for chain in (Chain(), Chain(payload_form=True)):  # the second never looks at a run together
        try:
            outcomes.append(chain.replay(rows))
        except BadEntry as bad:
            outcomes.append((bad.seq, bad.reason))
    assert outcomes[0] == outcomes[1]


FORGED = [
    (b'"seq":5', b'"seq":6'),
    (b'"seq":5', b'"seq":05'),
    (b"03:04", b"0x:04"),
    (b"2026-", b"2026 "),
    (b'"v":1', b'"v":2'),
]


@pytest.mark.parametrize(("old", "new"), FORGED)
def test_a_forged_header_with_the_chain_mended(old: bytes, new: bytes) -> None:
    paper = Paper().fill(8)
    entry = paper.entries[4]
    assert old in entry.header
    entry.header = entry.header.replace(old, new, 1)
    with pytest.raises(BadEntry, match="entry 5: "):
        Chain().replay(mended(paper, 4))


def test_a_row_in_another_place_than_its_header_says() -> None:
    rows = mended(Paper().fill(8), 8)
    rows[4] = (6, *rows[4][1:])
    with pytest.raises(BadEntry, match=r"entry 5: .*its header says 5, its row 6"):
        Chain().replay(rows)


def test_a_good_run_is_judged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chain, "_one", lambda *_: pytest.fail("one by one"))
    paper = Paper().fill(300)
    assert Chain().replay(mended(paper, 300)) == [entry.leaf for entry in paper.entries]


def test_unusual_but_canonical_headers_are_good(path: Path) -> None:
    paper = Paper().fill(3)
    paper.add(kind='a "quoted" kind', refs=["entry:1", "ünïcode", "back\\slash"])
    paper.fill(3)
    assert check(paper, path).state is State.UNPROVEN


class Endless:
    """Entries made while they are read."""

    origin: str | None = None
    keys: tuple[VerifierKey, ...] = ()

    def __init__(self, runs: int) -> None:
        self.runs = runs

    def records(self) -> Iterator[Record]:
        paper = Paper()
        for run in range(self.runs):
            paper.entries = paper.entries[-1:]
            made = [(seq, paper.add(seq=seq)) for seq in range(run * 256 + 1, run * 256 + 257)]
            yield Entries([(seq, entry.header, entry.leaf, entry.salt, entry.payload) for seq, entry in made])


def test_memory_does_not_grow_with_the_ledger() -> None:
    def peak(runs: int) -> int:
        tracemalloc.start()
        assert verify(Endless(runs)).size == runs * 256
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(24) < peak(4) * 1.2
