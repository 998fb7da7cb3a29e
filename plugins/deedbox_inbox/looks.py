"""What others may read: the federation ledger and conversations (OIP 1.2 §10, §11.1); looks on a read connection."""

from __future__ import annotations

from typing import Any

import orjson

from deedbox.clock import server_law, utc_z
from deedbox_inbox.conversation import ALLOWED_NEXT
from deedbox_inbox.index import found_in_spans

RECORDS = 5
MESSAGES = 100
LOOKED_AT = 500
"""Exchanges of one message id that are looked at in each place."""


def records_of(reader: Any, msg_id: str) -> list[Any]:
    """The exchanges about a message, newest first; what was taken before what was turned away.

    Claims and recent exchanges tell of the last day, the sealed index of everything before (kernel-notes §4.5). All
    are asked: whoever uses an old id anew does not hide what it stood for.
    """
    if "\0" in msg_id:
        return []
    recent = reader.all(
        "select exchange from inbox_recent where msg_id = :msg order by exchange desc limit :most",
        msg=msg_id,
        most=LOOKED_AT,
    )
    numbers = {row.exchange for row in recent} | _claimed(reader, msg_id)
    numbers |= set(found_in_spans(reader, msg_id, LOOKED_AT))
    rows = [row for number in numbers if (row := _exchange(reader, number)) and row.msg_id == msg_id]
    return sorted(rows, key=lambda row: (row.thread != 0, row.id), reverse=True)[:RECORDS]


def _claimed(reader: Any, msg_id: str) -> set[int]:
    """Where claims of this id say that their exchanges are; an id is spent once per sender and recipient."""
    numbers: set[int] = set()
    for space in ("", "unverified/"):
        begins = f"{space}inbox/{msg_id}/"
        rows = reader.all(
            "select meta from govern_claim where key >= :begins and key < :ends order by key limit :most",
            begins=begins,
            ends=f"{begins[:-1]}0",
            most=LOOKED_AT,
        )
        found = (orjson.loads(row.meta or "{}").get("exchange") for row in rows)
        numbers |= {number for number in found if number}
    return numbers


def _exchange(reader: Any, number: int) -> Any:
    return reader.one("select * from inbox_exchange where id = :id", id=number)


def newest(reader: Any, limit: int) -> list[Any]:
    return list(reader.all("select * from inbox_exchange order by id desc limit :limit", limit=limit))


def record(row: Any, zone: Any, *, discreet: bool = False) -> dict[str, Any]:
    """A row as the home shape has it (OIP 1.2 §10.2); a listing names domains, not agents (W42)."""

    def shown(agent: str) -> str:
        return agent.rpartition("@")[2] if discreet else agent

    return {
        "ts": server_law(row.at, zone),
        "kind": "FED_INBOX" if row.direction == "inbound" else "FED_SEND",
        "verdict": row.verdict,
        "direction": row.direction,
        "status": row.status,
        "msg_id": row.msg_id,
        "msg_kind": row.kind,
        "from": shown(row.sender),
        "to": shown(row.recipient),
        "body_sha256": row.body_sha256,
        "sender_verified": bool(row.verified),
        "audience": None if discreet else row.audience,
        "response_id": row.response_id,
        "response_kind": row.response_kind,
        "response_body_sha256": row.response_sha256,
        "response_verified": bool(row.response_verified),
        "invocation_id": row.invocation,
        "capability_fingerprint": row.capability,
        "reason": row.reason,
    }


def peer_record(row: Any) -> dict[str, Any]:
    """The same in the peer shape (OIP 1.2 §10.3); a joiner accepts either."""
    return {
        "id": row.msg_id,
        "kind": row.kind,
        "from": row.sender,
        "to": row.recipient,
        "ts": utc_z(row.at),
        "body_sha256": row.body_sha256,
        "direction": row.direction,
        "sender_verified": bool(row.verified),
        "verdict": row.verdict,
        "response_id": row.response_id,
        "response_kind": row.response_kind,
        "response_body_sha256": row.response_sha256,
        "response_verified": bool(row.response_verified),
    }


def conversation(reader: Any, conversation_id: str) -> dict[str, Any] | None:
    """The document of the thread of that name; knowing the name is the ticket.

    Whoever uses a name that others use already has a thread of his own, and it never stands before theirs: a proven
    pair comes first, then who was first.
    """
    if "\0" in conversation_id:
        return None
    row = reader.one(
        "select * from inbox_thread where key >= :begins and key < :ends and conversation = :id"
        " order by verified desc, id limit 1",
        begins=f"{conversation_id}\n",
        ends=f"{conversation_id}\v",  # the character after the newline: the names of one conversation, and maybe others
        id=conversation_id,
    )
    if row is None:
        return None
    rows = reader.all(
        "select * from inbox_exchange where thread = :thread order by id desc limit :most",
        thread=row.id,
        most=MESSAGES // 2,
    )
    messages = [message for each in reversed(rows) for message in _two(each)]
    participants = list(dict.fromkeys(agent for each in reversed(rows) for agent in (each.sender, each.recipient)))
    return {
        "id": row.conversation,
        "created_at": utc_z(row.created_at),
        "updated_at": utc_z(row.updated_at),
        "participants": participants,
        "state": row.state,
        "messages": messages,
        "open_commitments": orjson.loads(row.commitments),
        "unresolved_requests": orjson.loads(row.requests),
        "receipts": orjson.loads(row.receipts),
        "final": orjson.loads(row.final) if row.final else None,
        "allowed_next_kinds": list(ALLOWED_NEXT[row.state]),
    }


def _two(row: Any) -> list[dict[str, Any]]:
    inbound = row.direction == "inbound"
    received = "received" if row.verified else "received_unverified"
    first = {
        "msg_id": row.msg_id,
        "kind": row.kind,
        "direction": row.direction,
        "from": row.sender,
        "to": row.recipient,
        "ts": utc_z(row.at),
        "in_reply_to": row.in_reply_to,
        "verdict": received if inbound else "sent",
        "invocation_id": None,
        "body_sha256": row.body_sha256,
    }
    if not row.response_id or not row.response_verified:
        return [first]
    answered = row.reason or ("invoked" if row.kind == "invoke" else "answered")
    second = {
        "msg_id": row.response_id,
        "kind": row.response_kind,
        "direction": "outbound" if inbound else "inbound",
        "from": row.recipient,
        "to": row.sender,
        "ts": utc_z(row.responded_at),
        "in_reply_to": row.msg_id,
        "verdict": answered if inbound else "received",
        "invocation_id": row.invocation,
        "body_sha256": row.response_sha256,
    }
    return [first, second]


def conversations(reader: Any, limit: int) -> list[Any]:
    """The newest threads."""
    found: list[Any] = []
    for verified in (True, False):
        found += reader.all(
            "select * from inbox_thread where verified = :verified order by updated_at desc limit :limit",
            verified=verified,
            limit=limit,
        )
    return sorted(found, key=lambda row: row.updated_at, reverse=True)[:limit]


def listed(row: Any, *, owner: bool) -> dict[str, Any]:
    """A thread in a list; who takes part only for the owner (OIP 1.2 §11.6)."""
    return {
        "id": row.conversation,
        "state": row.state,
        **({"participants": [row.other, row.home]} if owner else {}),
        "messages": row.messages,
        "open_commitments": len(orjson.loads(row.commitments)),
        "unresolved_requests": len(orjson.loads(row.requests)),
        "updated_at": utc_z(row.updated_at),
    }
