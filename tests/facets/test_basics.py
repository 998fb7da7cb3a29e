"""The four harmless objects."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from deedbox.testing import RunningNode
from tests.facets import door


async def test_text_in_text_out(home: RunningNode) -> None:
    expected = {
        ("ECHO", "as it is ␟ é\n"): "as it is ␟ é\n",
        ("ECHO", ""): "",
        ("UPPER", "straße"): "STRASSE",
        ("SHA256_LOWER", "Hello"): hashlib.sha256(b"Hello").hexdigest(),
    }
    for (key, body), result in expected.items():
        answer = await door.run_as_owner(home, key, body)
        assert (answer.status, answer.json()["result"]) == (200, result)


async def test_now_is_the_nodes_own_clock_in_its_zone(tmp_path: Path) -> None:
    async with door.as_in_vectors(tmp_path / "home") as (node, clock):
        clock.advance(0.5)
        told = (await door.run_as_owner(node, "NOW", "ignored")).json()["result"]
    assert told == door.vector("invoke-response")["result"]


async def test_nobody_runs_them_without_owner_or_capability(home: RunningNode) -> None:
    for key in ("NOW", "ECHO", "UPPER", "SHA256_LOWER"):
        answer = await home.post(door.DOOR, {"key": key, "body": "x"})
        assert (answer.status, answer.json()["error"]) == (401, "unauthorized")


async def test_each_has_a_contract(home: RunningNode) -> None:
    registry = (await home.get(door.target(registry=1))).json()
    assert [each["id"] for each in registry["objects"]] == ["ECHO", "NOW", "SHA256_LOWER", "UPPER"]
    for told in registry["objects"]:
        semantics = told["operation_semantics"]
        assert (semantics["safe"], semantics["idempotent"]) == (True, True)
        assert told["examples"] == [f"[{told['id']}]{'' if told['id'] == 'NOW' else 'hello'}[/{told['id']}]"]
        assert (told["auth"], told["risk"], told["status"]) == ("required", "low", "active")


async def test_a_disclosure_by_the_owner_is_an_event_and_under_a_capability_an_entry(home: RunningNode) -> None:
    held = await door.token(home)
    owned, granted = await door.run_as_owner(home, "NOW"), await door.run(home, held)
    assert owned.json()["invocation"]["event_id"].startswith("event:")
    assert granted.json()["invocation"]["event_id"].startswith("entry:")
    assert json.loads(granted.json()["result"])["zone"] == "UTC"
