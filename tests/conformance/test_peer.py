"""The judge as a peer and as a client: what others may expect of it, and what it does not believe."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deedbox_conformance import Client, Peer, Trust, wire
from deedbox_conformance.client import MAX_ANSWER, Unreachable
from deedbox_conformance.listener import Listener, Request, Response
from tests.conformance.world import AGENT, JUDGE, NODE, Papers, running

SENDER = f"node@{NODE}"


@pytest.fixture
async def peer(papers: Papers) -> AsyncIterator[tuple[Peer, Client, wire.PrivateKey]]:
    """A peer on a socket, somebody who can reach it, and the key of an agent it can look up."""
    peer, key = Peer(AGENT), wire.PrivateKey.generate()

    async def key_of(agent: str) -> Any:
        return key.jwk if agent == SENDER else None

    peer.key_of = key_of
    client = Client(Trust(papers.authority, {JUDGE: await peer.start("127.0.0.1", 0, papers.served())}))
    yield peer, client, key
    await client.close()
    await peer.close()


async def _post(client: Client, envelope: Any) -> Any:
    answer = await client.send("POST", f"https://{JUDGE}/oip/inbox", content=wire.canonical(envelope))
    return answer.status, answer.members()


async def test_it_publishes_four_agents_with_usable_keys(peer: tuple[Peer, Client, wire.PrivateKey]) -> None:
    judge, client, _ = peer
    told: Any = (await client.send("GET", f"https://{JUDGE}/.well-known/oip.json")).members()
    assert [entry["id"] for entry in told["agents"]] == [judge.agent, judge.second, judge.rotating, judge.victim]
    assert all(wire.public_key(entry["public_key_jwk"]) for entry in told["agents"])
    before = told["agents"][2]["public_key_jwk"]
    judge.rotate(judge.rotating)
    told = (await client.send("GET", f"https://{JUDGE}/.well-known/oip.json")).members()
    assert told["agents"][2]["public_key_jwk"] != before


@pytest.mark.parametrize(
    ("kind", "forged", "expected"),
    [
        ("event", False, ("event", None)),
        ("invoke", False, ("error", "no_local_objects")),
        ("event", True, ("error", "bad_signature")),
    ],
)
async def test_it_verifies_and_acknowledges_and_runs_nothing(
    kind: str, forged: bool, expected: tuple[str, Any], peer: tuple[Peer, Client, wire.PrivateKey]
) -> None:
    judge, client, key = peer
    envelope = wire.signed(wire.draft(kind, SENDER, AGENT, {}), wire.PrivateKey.generate() if forged else key)
    status, reply = await _post(client, envelope)
    assert status == 200
    assert (reply["kind"], reply["body"].get("reason")) == expected
    assert (reply["to"], reply["in_reply_to"]) == (SENDER, envelope["id"])
    assert wire.signature_holds(judge.key(AGENT).jwk, wire.preimage(reply), reply["signature"]["value"])
    told: Any = (await client.send("GET", f"https://{JUDGE}/oip/ledger?msg={envelope['id']}")).members()
    assert told["record"]["body_sha256"] == envelope["body_sha256"]


async def test_it_refuses_what_is_not_for_it(peer: tuple[Peer, Client, wire.PrivateKey]) -> None:
    _, client, key = peer
    stranger = wire.signed(wire.draft("event", "who@else.test", AGENT, {}), wire.PrivateKey.generate())
    assert (await _post(client, stranger))[1]["body"]["reason"] == "sender_unverifiable"
    changed = wire.signed(wire.draft("event", SENDER, AGENT, {}), key) | {"body": {"a": 1}}
    assert (await _post(client, changed))[1]["body"]["reason"] == "body_hash_mismatch"
    assert (await _post(client, wire.draft("event", SENDER, AGENT, {})))[1]["body"]["reason"] == "missing_signature"
    assert (await _post(client, wire.draft("event", SENDER, "who@judge.test", {})))[0] == 404
    assert (await _post(client, {"protocol": "smtp"}))[0] == 400
    assert (await _post(client, "x" * 140_000))[0] == 413
    unknown = await client.send("GET", f"https://{JUDGE}/oip/ledger?msg=msg_unknown")
    assert (unknown.status, unknown.members()["error"]) == (404, "not_found")
    listed = await client.send("GET", f"https://{JUDGE}/oip/ledger")
    assert listed.members()["count"] == 3
    assert (await client.send("GET", f"https://{JUDGE}/elsewhere")).status == 404


async def test_every_message_it_sent_is_in_its_ledger(papers: Papers) -> None:
    async with running(papers) as probe:
        exchange = await probe.ask("query", {"text": "hello"})
        record = probe.peer.record(str(exchange.sent["id"])) or {}
    assert record["response_body_sha256"] == exchange.reply["body_sha256"]
    assert record["response_verified"] is True


async def test_it_believes_no_certificate_for_another_name(papers: Papers) -> None:
    seen: list[str] = []

    async def respond(request: Request) -> Response:
        seen.append(request.headers["host"])
        return Response.json({})

    listener = Listener(respond)
    address = await listener.start("127.0.0.1", 0, papers.served())
    client = Client(Trust(papers.authority, {"other.test": address, NODE: address}))
    sceptic = Client(Trust(None, {NODE: address}))
    try:
        assert (await client.send("GET", f"https://{NODE}/")).status == 200
        with pytest.raises(Unreachable):
            await client.send("GET", "https://other.test/")
        with pytest.raises(Unreachable):
            await sceptic.send("GET", f"https://{NODE}/")
    finally:
        await client.close()
        await sceptic.close()
        await listener.close()
    assert seen == [NODE]


async def test_it_reads_no_endless_answer(papers: Papers) -> None:
    async def respond(_: Request) -> Response:
        return Response(200, b"x" * (MAX_ANSWER + 1))

    listener = Listener(respond)
    client = Client(Trust(papers.authority, {NODE: await listener.start("127.0.0.1", 0, papers.served())}))
    try:
        with pytest.raises(Unreachable, match="longer"):
            await client.send("GET", f"https://{NODE}/")
    finally:
        await client.close()
        await listener.close()


def test_an_agent_needs_a_domain() -> None:
    with pytest.raises(ValueError, match="agent@domain"):
        Peer("judge")
    assert json.dumps(Peer("Judge@Judge.test").document()).count("judge@judge.test") == 1
