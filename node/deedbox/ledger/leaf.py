"""What an entry is hashed from: its header's canonical bytes, and salted commitments to all that may have to go.

RFC 8785 (canonical JSON) and RFC 9162 §2.1.1 (leaf hashes).

**Entry header**, a canonical JSON object with exactly these members: ``v`` 1; ``seq`` integer from 1; ``ts`` UTC,
``2026-01-02T03:04:05.678Z``; ``kind`` string; ``prev`` 64 hexadecimal digits, the leaf hash of the entry before (zeros
for the first); ``actor`` and ``payload`` 64 hexadecimal digits each, commitments; ``subject`` the same or ``null``;
``refs`` array of strings such as ``"entry:12"``. Leaf hash = SHA-256(``00`` ‖ header), the ``prev`` of the next entry.

**Commitment** = SHA-256(label ‖ 32 bytes of salt ‖ what is committed to), the label being ``deedbox/payload``,
``deedbox/actor`` or ``deedbox/subject`` and a zero byte; payloads in canonical JSON, names in UTF-8. The salt lies with
the payload and is deleted with it: what remains cannot be guessed (fed:D8).

**Event leaf** = SHA-256(``00`` ‖ 32 bytes of salt ‖ event in canonical JSON). The payload of an entry of kind ``batch``
is ``{"first": id, "last": id, "count": n, "root": hex, "from": ts, "to": ts, "schema": "deedbox-event/1", "dropped":
{kind: n}}``, the root being the RFC 9162 root over the event leaves in the order of their ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import rfc8785

from deedbox.ledger.merkle import HASH_SIZE
from deedbox.refusals import Refusal

SALT_SIZE = 32
NO_ENTRY = bytes(32)
"""``prev`` of the first entry."""
PAYLOAD_LABEL = b"deedbox/payload\x00"
ACTOR_LABEL = b"deedbox/actor\x00"
SUBJECT_LABEL = b"deedbox/subject\x00"
BATCH_KIND = "batch"
EVENT_SCHEMA = "deedbox-event/1"

_PLAIN = r"[ !#-\[\]-~]*"
"""Text that canonical JSON prints as it is."""
_is_plain = re.compile(_PLAIN).fullmatch
_is_hash = re.compile(r"[0-9a-f]{64}").fullmatch
_is_instant = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z").fullmatch
_MEMBERS = ("actor", "kind", "payload", "prev", "refs", "seq", "subject", "ts", "v")
_SAFE_INTEGER = 2**53 - 1

PLAIN_HEADER = re.compile(
    (
        rf'\{{"actor":"(.{{64}})","kind":"{_PLAIN}","payload":"(.{{64}})","prev":"(.{{64}})",'
        rf'"refs":\[(?:"{_PLAIN}"(?:,"{_PLAIN}")*)?\],"seq":([0-9]+),'
        r'"subject":(?:null|"(.{64})"),"ts":"(.{24})","v":1\}'
    ).encode(),
    re.DOTALL,
)
"""A header of plain text in canonical form, for reading by the thousand.

Groups: actor, payload, prev, seq, subject or nothing, ts. That the first three and the subject are hexadecimal, ``seq``
the expected number and ``ts`` an instant is left to the reader, who can ask it of many headers at once.
"""


class Header(NamedTuple):
    """An entry's header, read."""

    seq: int
    ts: str
    kind: str
    prev: bytes
    actor: str
    subject: str | None
    payload: str
    refs: tuple[str, ...]


class Batch(NamedTuple):
    """What a batch entry says of the events it seals: ids ``first`` to ``last``, ``size`` of them, and their root."""

    first: int
    last: int
    size: int
    root: bytes


def commit_payload(salt: bytes, canonical: bytes) -> str:
    """The commitment to a payload in canonical JSON, in hexadecimal."""
    return _commit(PAYLOAD_LABEL, salt, canonical)


def commit_actor(salt: bytes, actor: str) -> str:
    """The commitment to who acted."""
    return _commit(ACTOR_LABEL, salt, actor.encode())


def commit_subject(salt: bytes, subject: str) -> str:
    """The commitment to whom or what the act concerned."""
    return _commit(SUBJECT_LABEL, salt, subject.encode())


def _commit(label: bytes, salt: bytes, content: bytes) -> str:
    if len(salt) != SALT_SIZE:
        raise ValueError("a salt has 32 bytes: a shorter or longer one could trade bytes with the content")
    return sha256(label + salt + content).hexdigest()


def event_leaf(salt: bytes, canonical: bytes) -> bytes:
    """The leaf of an event in its batch."""
    if len(salt) != SALT_SIZE:
        raise ValueError("a salt has 32 bytes: a shorter or longer one could trade bytes with the content")
    return sha256(b"\x00" + salt + canonical).digest()


def header_bytes(
    *,
    seq: int,
    ts: str,
    kind: str,
    prev: bytes,
    actor: str,
    subject: str | None,
    payload: str,
    refs: Sequence[str] = (),
) -> bytes:
    """The header's canonical bytes; ``prev`` is the raw leaf hash, commitments are hexadecimal."""
    if _is_plain(kind) and all(map(_is_plain, refs)):
        joined = '","'.join(refs)
        listed = f'"{joined}"' if refs else ""
        about = f'"{subject}"' if subject is not None else "null"
        return (
            f'{{"actor":"{actor}","kind":"{kind}","payload":"{payload}","prev":"{prev.hex()}","refs":[{listed}],'
            f'"seq":{seq},"subject":{about},"ts":"{ts}","v":1}}'
        ).encode()
    values = (actor, kind, payload, prev.hex(), list(refs), seq, subject, ts, 1)
    try:
        return rfc8785.dumps(dict(zip(_MEMBERS, values, strict=True)))
    except ValueError as error:
        raise Refusal("bad_entry_header", 422, "an entry's kind and references must be valid Unicode") from error


def parse_header(raw: bytes) -> Header:
    """Read a header and hold it to every rule of its form; a ``Refusal`` that says which one it breaks."""
    try:
        fields: Any = json.loads(raw)
        again = rfc8785.dumps(fields)
    except (ValueError, RecursionError, TypeError) as error:
        raise _bad("is not JSON in UTF-8") from error
    if again != raw:
        raise _bad("is not in canonical form (RFC 8785)")
    if not isinstance(fields, dict) or tuple(fields) != _MEMBERS:
        raise _bad(f"must have exactly the members {', '.join(_MEMBERS)}")
    for name in ("actor", "payload", "prev"):
        if not isinstance(fields[name], str) or not _is_hash(fields[name]):
            raise _bad(f"member {name} must be 64 hexadecimal digits")
    _check_values(fields)
    return Header(
        fields["seq"],
        fields["ts"],
        fields["kind"],
        bytes.fromhex(fields["prev"]),
        fields["actor"],
        fields["subject"],
        fields["payload"],
        tuple(fields["refs"]),
    )


def _check_values(fields: dict[str, Any]) -> None:
    subject, refs = fields["subject"], fields["refs"]
    if subject is not None and not (isinstance(subject, str) and _is_hash(subject)):
        raise _bad("member subject must be 64 hexadecimal digits or null")
    if type(fields["v"]) is not int or fields["v"] != 1:
        raise _bad("member v must be 1")
    if type(fields["seq"]) is not int or not 1 <= fields["seq"] <= _SAFE_INTEGER:
        raise _bad("member seq must be an integer from 1")
    if not isinstance(fields["ts"], str) or not _is_instant(fields["ts"]):
        raise _bad("member ts must be an instant in UTC with milliseconds")
    if not isinstance(fields["kind"], str):
        raise _bad("member kind must be a string")
    if not isinstance(refs, list) or not all(isinstance(ref, str) for ref in refs):
        raise _bad("member refs must be an array of strings")


def parse_batch(payload: bytes) -> Batch:
    """Read a batch entry's payload; a ``Refusal`` if it does not say which events it seals."""
    try:
        fields = json.loads(payload)
        batch = Batch(fields["first"], fields["last"], fields["count"], bytes.fromhex(fields["root"]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refusal("bad_batch", 422, "the batch does not say which events it seals") from error
    numbers = (batch.first, batch.last, batch.size)
    if fields.get("schema") != EVENT_SCHEMA or any(type(number) is not int for number in numbers):
        raise Refusal("bad_batch", 422, f"the batch is not of schema {EVENT_SCHEMA}")
    if not 1 <= batch.size <= batch.last - batch.first + 1 or len(batch.root) != HASH_SIZE:
        raise Refusal("bad_batch", 422, "the batch's count, range and root do not fit together")
    return batch


def _bad(detail: str) -> Refusal:
    return Refusal("bad_entry_header", 422, f"the header {detail}")
