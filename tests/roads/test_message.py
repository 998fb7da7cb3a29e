"""A message walked to its receipt: from one node's owner to another node's object and back, and in both ledgers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox.control import perform
from deedbox.ledger.leaf import parse_header
from deedbox.ledger.merkle import leaf_hash
from deedbox.storage.sqlite import SqliteConnection
from deedbox.testing import RunningNode

FACETS: dict[str, dict[str, Any]] = {
    name: {} for name in ("wellknown", "inbox", "capabilities", "dispatch", "https", "basics")
}
TwoNodes = Callable[..., Awaitable[tuple[RunningNode, RunningNode]]]


async def as_owner(node: RunningNode, asked: str, **arguments: Any) -> dict[str, Any]:
    """An object run at its owner's word."""
    told = await perform(node.node, asked, arguments, os.geteuid())
    assert told["ok"], told
    return told


async def entries(node: RunningNode) -> list[tuple[Any, dict[str, Any], bytes]]:
    """Header, payload and leaf of every entry but those of the sealer."""
    sql = "select e.header, e.leaf, p.payload from ledger_entry e join ledger_payload p on p.seq = e.seq order by e.seq"
    rows = await node.node.database.read(lambda reader: reader.all(sql))
    found = []
    for row in rows:
        header = parse_header(bytes(row.header))
        assert leaf_hash(bytes(row.header)) == bytes(row.leaf)
        if header.kind != "batch":
            found.append((header, orjson.loads(bytes(row.payload)), bytes(row.leaf)))
    return found


@pytest.mark.case("oip:F2", "oip:F10")
async def test_an_order_across_domains(two_nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    alpha, beta = await two_nodes(facets=FACETS)
    minted = await as_owner(beta, "CAPABILITY_MINT", scope="row", key="UPPER", aud=alpha.domain, uses=2)
    token = minted["value"]["share_token"]
    forbid_sessions(monkeypatch)
    sent = await as_owner(
        alpha, "SEND", to=beta.agent(), kind="invoke", capability=token, body={"key": "UPPER", "args": "hello"}
    )
    standing = sent["value"]
    body = standing["response_body"]
    assert (standing["state"], standing["response_verified"]) == ("delivered", True)
    assert (body["ok"], body["result"], body["object"], body["agent"]) == (True, "HELLO", "UPPER", beta.agent())
    await at_the_receiver(beta, standing, token)
    await at_the_sender(alpha, standing, sent["receipt"])
    await as_the_ledgers_tell(alpha, beta, standing)
    for node in (alpha, beta):
        assert await asyncio.to_thread(files_with, token, node.folder) == []


def forbid_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a message costs is rows asked for and written by the group, never an ORM session (decision 29)."""
    monkeypatch.setattr(SqliteConnection, "session", lambda _: pytest.fail("a session was opened for a message"))


async def at_the_receiver(beta: RunningNode, standing: dict[str, Any], token: str) -> None:
    """One entry: who asked, under which capability, what went in and came out, as hashes."""
    ((header, said, leaf),) = [each for each in await entries(beta) if each[1].get("msg") == standing["message_id"]]
    body = standing["response_body"]
    assert (header.kind, said["object"], said["actor"]) == ("executed", "UPPER", standing["sender"])
    assert said["invocation"] == body["invocation_id"]
    assert (said["inputs_sha256"], said["output_sha256"]) == (standing["body_sha256"], await answered_hash(beta, said))
    assert said["charges"][0]["capability"] == body["capability_fingerprint"]
    assert "hello" not in str(said).lower()
    assert token not in str(said)
    confirmed = (await beta.get(f"/api/dispatch?confirm={body['invocation_id']}")).json()
    assert (confirmed["status"], confirmed["identity"]["invocation_id"]) == (
        "PROVEN_MATERIAL_RESULT",
        body["invocation_id"],
    )
    assert confirmed["integrity"]["transparency"] == {
        "id": f"entry:{header.seq}",
        "seq": header.seq,
        "leaf": leaf.hex(),
    }


async def answered_hash(beta: RunningNode, said: dict[str, Any]) -> str:
    """The hash of the body of the answer, by the federation ledger."""
    (record,) = (await beta.get(f"/oip/ledger?msg={said['msg']}")).json()["records"]
    return str(record["response_body_sha256"])


async def at_the_sender(alpha: RunningNode, standing: dict[str, Any], receipt: dict[str, Any]) -> None:
    """The act outside began and ended in the ledger, and its receipt is that end's."""
    kinds = [(header.kind, said.get("object")) for header, said, _ in await entries(alpha)]
    assert [each for each in kinds if each[1] == "SEND"] == [("started", "SEND"), ("executed", "SEND")]
    header, said, leaf = next(each for each in await entries(alpha) if each[0].seq == receipt["seq"])
    assert (receipt["seq"], receipt["leaf"], receipt["id"]) == (header.seq, leaf.hex(), said["invocation"])
    assert (said["message_id"], said["response_id"]) == (standing["message_id"], standing["response_id"])


async def as_the_ledgers_tell(alpha: RunningNode, beta: RunningNode, standing: dict[str, Any]) -> None:
    """Anybody can join the two on the message's id and the hash of its body (OIP 1.2 §10.3)."""
    told = [(await node.get(f"/oip/ledger?msg={standing['message_id']}")).json()["records"] for node in (alpha, beta)]
    (outbound,), (inbound,) = told
    assert (outbound["direction"], inbound["direction"]) == ("outbound", "inbound")
    shared = ("msg_id", "from", "to", "body_sha256", "response_id", "response_body_sha256", "invocation_id")
    assert {name: outbound[name] for name in shared} == {name: inbound[name] for name in shared}
    assert (inbound["verdict"], inbound["sender_verified"], inbound["audience"]) == ("invoked", True, alpha.domain)


def files_with(text: str, folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]
