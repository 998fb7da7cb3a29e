"""The whole way across domains on either engine: ask, be given authority, use it, lose it, read what was written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deedbox_conformance import Probe
from deedbox_conformance.clauses import scenes
from deedbox_conformance.clauses.federation import confirmation, mint
from tests.conformance.courtroom import our_node, probing


@pytest.fixture
async def peer(tmp_path: Path, database_url: str) -> AsyncIterator[Probe]:
    """A peer from outside, beside a node on that database."""
    async with our_node(tmp_path, node={"database": database_url}) as node, probing(tmp_path, node) as probe:
        yield probe


async def test_ask_be_allowed_run_be_revoked_and_read_it_all(peer: Probe) -> None:
    asked = await peer.ask("query", {"text": "are you there?"})
    assert asked.body["sender_verified"] is True
    token = await mint(peer, uses="3")
    thread: dict[str, Any] = {"conversation": asked.sent["conversation"]}
    strayed = await peer.ask("invoke", {"key": "UPPER", "args": "deed"}, capability=token.text, **thread)
    assert strayed.reason == "scope_mismatch"
    ran = await peer.ask("invoke", {"key": "NOW", "args": ""}, capability=token.text, **thread)
    assert (ran.reply["kind"], ran.body["ran"]) == ("result", True)
    assert (await confirmation(peer, ran.body["invocation_id"])).members()["confirmed"] is True
    assert (await peer.as_owner({"revoke": token.fingerprint})).members()["revoked"] is True
    denied = await peer.ask("invoke", {"key": "NOW", "args": ""}, capability=token.text, **thread)
    assert denied.reason == "revoked"
    told = await peer.get("/oip/conversation", {"id": str(asked.sent["conversation"])})
    seen = str(told.members())
    assert all(str(exchange.sent["id"]) in seen for exchange in (asked, strayed, ran, denied))
    for exchange, verdict, status in ((asked, "echoed", 200), (ran, "invoked", 200), (denied, "denied:revoked", 401)):
        assert await scenes.shown(peer, exchange) == [(verdict, status)]
    newest = (await scenes.ledger(peer, limit="2")).members()
    assert newest["count"] == 2
