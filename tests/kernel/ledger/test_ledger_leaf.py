"""Headers, commitments and event leaves: their exact bytes, and that nothing else is taken for them."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbox.ledger.leaf import (
    NO_ENTRY,
    Header,
    commit_actor,
    commit_payload,
    commit_subject,
    event_leaf,
    header_bytes,
    parse_batch,
    parse_header,
)
from deedbox.refusals import Refusal

A, B, C = "a" * 64, "b" * 64, "0123456789abcdef" * 4
FIELDS: dict[str, Any] = {
    "seq": 12,
    "ts": "2026-01-02T03:04:05.678Z",
    "kind": "capability.use",
    "prev": bytes.fromhex(C),
    "actor": A,
    "subject": B,
    "payload": C,
    "refs": ["entry:1", "entry:7"],
}
HEADER = (
    f'{{"actor":"{A}","kind":"capability.use","payload":"{C}","prev":"{C}","refs":["entry:1","entry:7"],"seq":12,'
    f'"subject":"{B}","ts":"2026-01-02T03:04:05.678Z","v":1}}'
)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
hashes = st.binary(min_size=32, max_size=32)


def test_the_bytes_of_a_header() -> None:
    assert header_bytes(**FIELDS) == HEADER.encode()
    assert (
        header_bytes(**FIELDS | {"subject": None, "refs": (), "prev": NO_ENTRY})
        == (
            f'{{"actor":"{A}","kind":"capability.use","payload":"{C}","prev":"{"0" * 64}","refs":[],"seq":12,'
            '"subject":null,"ts":"2026-01-02T03:04:05.678Z","v":1}'
        ).encode()
    )


@given(text, st.lists(text, max_size=3), st.integers(1, 2**53 - 1), hashes, st.none() | hashes)
@settings(max_examples=200, deadline=None)
def test_a_header_is_canonical_json_and_reads_back(
    kind: str, refs: list[str], seq: int, prev: bytes, subject: bytes | None
) -> None:
    about = subject.hex() if subject else None
    fields = FIELDS | {"kind": kind, "refs": refs, "seq": seq, "prev": prev, "subject": about}
    raw = header_bytes(**fields)
    assert raw == rfc8785.dumps({**fields, "prev": prev.hex(), "v": 1})
    assert parse_header(raw) == Header(**{**fields, "refs": tuple(refs)})


@pytest.mark.parametrize(
    "raw",
    [
        HEADER.replace(",", ", "),
        HEADER + "\n",
        HEADER.replace('"v":1', '"v":2'),
        HEADER.replace('"v":1', '"v":1.0'),
        HEADER.replace('"v":1', '"v":true'),
        HEADER.replace('"v":1', '"v":1,"w":1'),
        HEADER.replace(',"v":1', ""),
        HEADER.replace('"seq":12', '"seq":0'),
        HEADER.replace('"seq":12', '"seq":"12"'),
        HEADER.replace('"seq":12', '"seq":12.5'),
        HEADER.replace('"seq":12', '"seq":9007199254740992'),
        HEADER.replace('"seq":12', '"seq":12,"seq":12'),
        HEADER.replace('"seq":12', f'"seq":{"1" * 5000}'),
        HEADER.replace(A, A[1:]),
        HEADER.replace(A, A.upper()),
        HEADER.replace(B, "g" * 64),
        HEADER.replace(f'"{B}"', "1"),
        HEADER.replace(f'"{A}"', "null"),
        HEADER.replace("05.678Z", "05Z"),
        HEADER.replace("05.678Z", "05.678+00:00"),
        HEADER.replace('"capability.use"', "7"),
        HEADER.replace('"entry:7"', "7"),
        HEADER.replace('["entry:1","entry:7"]', '"entry:1"'),
        HEADER.replace("capability", "c\\u0061pability"),
        HEADER.replace("capability", "\\ud800"),
        "[" * 100_000,
        "[]",
        "null",
        "",
    ],
)
def test_any_other_spelling_or_shape_is_refused(raw: str) -> None:
    assert raw != HEADER
    with pytest.raises(Refusal, match="bad_entry_header"):
        parse_header(raw.encode())


def test_other_encodings_are_refused() -> None:
    for raw in (HEADER.encode("utf-16"), b"\xff" + HEADER.encode(), b"\xef\xbb\xbf" + HEADER.encode()):
        with pytest.raises(Refusal, match="bad_entry_header"):
            parse_header(raw)


def test_lone_surrogates_are_refused_when_writing() -> None:
    with pytest.raises(Refusal, match="bad_entry_header"):
        header_bytes(**FIELDS | {"kind": "\ud800"})


def test_the_bytes_of_commitments_and_event_leaves() -> None:
    salt = bytes(range(32))
    assert commit_payload(salt, b"{}") == sha256(b"deedbox/payload\0" + salt + b"{}").hexdigest()
    assert commit_actor(salt, "änn@a.test") == sha256(b"deedbox/actor\0" + salt + "änn@a.test".encode()).hexdigest()
    assert commit_subject(salt, "cap_1") == sha256(b"deedbox/subject\0" + salt + b"cap_1").hexdigest()
    assert event_leaf(salt, b"{}") == sha256(b"\0" + salt + b"{}").digest()


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_salt_has_32_bytes(size: int) -> None:
    for commit in (commit_payload, event_leaf):
        with pytest.raises(ValueError, match="32 bytes"):
            commit(bytes(size), b"{}")


@pytest.mark.case("fed:D8")
def test_a_redacted_payload_cannot_be_guessed() -> None:
    approved = rfc8785.dumps({"approved": True})
    kept = commit_payload(bytes(range(32)), approved)
    assert kept != commit_payload(bytes(32), approved)
    for prefix in (b"", b"deedbox/payload\0", b"\0"):
        assert sha256(prefix + approved).hexdigest() != kept


BATCH = {"first": 3, "last": 9, "count": 5, "root": A, "from": "", "to": "", "schema": "deedbox-event/1", "dropped": {}}


def test_a_batch_reads() -> None:
    assert parse_batch(json.dumps(BATCH).encode()) == (3, 9, 5, bytes.fromhex(A))


@pytest.mark.parametrize(
    "changed",
    [
        {"count": 0},
        {"count": 8},
        {"count": True},
        {"count": "5"},
        {"first": 9.0},
        {"last": 2},
        {"root": A[2:]},
        {"root": "x"},
        {"root": None},
        {"schema": "deedbox-event/2"},
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="bad_batch"):
        parse_batch(json.dumps(BATCH | changed).encode())


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_batch_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal, match="bad_batch"):
        parse_batch(raw)
