"""What is told of a run: response, event, confirmation, repeats; and how a result is judged."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from deedbox import Effect, Facet, Inside, Object, Outside, Plugin, Text, hookimpl, testing
from deedbox.canonical import canonical
from deedbox.catalog import PROMISED, contract_hash
from deedbox.govern.material import material_of
from deedbox.testing import RunningNode
from deedbox_dispatch.artifacts import artifacts_of
from deedbox_dispatch.links import Links
from deedbox_dispatch.phrasing import deduped
from tests.facets import door
from tests.facets.door import DOOR, as_in_vectors, mint, run, run_as_owner, target, token, vector

LINKS = {"public_receipt", "receipt", "confirm", "say_to_user", "links"}
"""Members that hold addresses: ours are those that answer."""
OWN = {"id", "trace_id", "event_id", "fingerprints", "operation_contract", "postcondition", "actor", "on_behalf_of"}
TOKEN_IN_TEXT = re.compile(r"sh\.\d{6,}\.[a-z]")


@pytest.mark.parametrize("case", vector("material")["cases"], ids=lambda case: str(case["result"])[:40])
def test_a_result_is_judged_as_in_the_vectors(case: dict[str, Any]) -> None:
    found = material_of(case["result"])
    assert found.outputs == case["material_outputs"]
    assert (found.provider_status, found.provider_failed) == (case["provider_status"], case["provider_failed"])


@pytest.mark.parametrize(
    ("result", "proven"),
    [
        ("hello", True),
        ('{"skipped":true}', True),
        ("", False),
        ("ERR:http:500:x", False),
        ("PROVIDER_ERROR x", False),
        ("SHAPED:fn NOW", False),
        ('{"ok":false}', False),
        ("HTTP 204:", False),
        ('{"response":{"status":"HTTP 502: gone"}}', False),
        ('{"a":' * 60 + "1" + "}" * 60, True),
    ],
)
def test_what_is_proven(result: str, proven: bool) -> None:
    assert material_of(result).proven is proven


def test_a_contract_is_hashed_as_in_the_vector() -> None:
    told = vector("object")
    assert contract_hash(told["object"]) == told["_contract_pin"]
    promised = {name: told["object"][name] for name in PROMISED}
    assert canonical(promised).decode() == told["_contract_pin_preimage"]
    assert contract_hash({**told["object"], "description": "another"}) != told["_contract_pin"]


def test_artifacts_are_found_in_members_and_in_text() -> None:
    told = {
        "artifacts": ["r2:one", "not one"],
        "inner": {"image_url": "https://a.example/i.png", "note": "see https://b.example/x)."},
        "url": "/a/page",
        "other": "file:no",
    }
    found = artifacts_of(json.dumps(told))
    assert found == ["r2:one", "https://a.example/i.png", "/a/page", "https://b.example/x"]
    assert artifacts_of("go to https://c.example/y; or https://c.example/y") == ["https://c.example/y"]
    assert len(artifacts_of(" ".join(f"https://d.example/{each}" for each in range(99)))) == 50
    assert artifacts_of('{"url": not json') == []


@pytest.fixture
async def vector_run(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run of the vectors, and its confirmation."""
    async with as_in_vectors(tmp_path / "home") as (node, clock):
        held = await token(node, uses=3, ttl=600, purpose="demo", actor="alice@peer.example")
        clock.advance(0.5)
        sender = "alice@peer.example"
        said = f"federated invoke from {sender}"
        told = (await run(node, held, body="hello", on_behalf_of=[sender], authorized_by=said)).json()
        confirmed = (await node.get(target(confirm=told["invocation"]["id"]))).json()
    return told, confirmed


async def test_a_run_is_told_as_in_the_vector(vector_run: tuple[dict[str, Any], dict[str, Any]]) -> None:
    told, expected = vector_run[0], vector("invoke-response")
    assert told.keys() == expected.keys() | {"receipt"}
    for name in ("ok", "ran", "kind", "result", "cost", "yield"):
        assert told[name] == expected[name]
    assert told["proof"].keys() == expected["proof"].keys()
    for name in expected["proof"].keys() - LINKS - {"invocation_id"}:
        assert told["proof"][name] == expected["proof"][name], name
    assert told["_oip"]["version"] == expected["_oip"]["version"]
    assert told["_oip"]["object"].keys() == expected["_oip"]["object"].keys()
    assert told["affordances"]["computed_for"] == expected["affordances"]["computed_for"]
    assert told["_self"].keys() <= expected["_self"].keys()


async def test_the_event_of_a_run_is_that_of_the_vector(vector_run: tuple[dict[str, Any], dict[str, Any]]) -> None:
    event, expected = vector_run[0]["invocation"], vector("invocation-event")
    assert event.keys() == expected.keys()
    for name in expected.keys() - OWN - LINKS:
        assert event[name] == expected[name], name
    assert event["links"].keys() == expected["links"].keys()
    assert event["postcondition"].keys() == expected["postcondition"].keys()
    same = ("claimed_chain", "minted_for", "note")
    assert [event["on_behalf_of"][name] for name in same] == [expected["on_behalf_of"][name] for name in same]
    assert event["on_behalf_of"]["immediate_actor"] == event["actor"]
    assert event["event_id"] == event["postcondition"]["ledger_event_id"] == "entry:2"


@pytest.mark.case("oip:C22")
async def test_the_caller_is_told_exact_fingerprints(vector_run: tuple[dict[str, Any], dict[str, Any]]) -> None:
    told, expected = vector_run[0], vector("invocation-event")["fingerprints"]
    found = told["invocation"]["fingerprints"]
    for name in ("algorithm", "input", "output"):
        assert found[name] == expected[name]
    assert found["input"] == hashlib.sha256(b"hello").hexdigest()
    assert found["output"] == hashlib.sha256(told["result"].encode()).hexdigest()
    assert re.fullmatch(r"[0-9a-f]{64}", found["contract"])


async def test_anybody_can_confirm_a_run_as_in_the_vector(vector_run: tuple[dict[str, Any], dict[str, Any]]) -> None:
    told, confirmed = vector_run
    expected = vector("confirm")
    assert confirmed.keys() == expected.keys() - {"$schema"} | {"receipt"}
    for name in ("protocol", "version", "kind", "title", "confirmed", "ok", "status", "headline"):
        assert confirmed[name] == expected[name]
    for name in ("identity", "execution", "integrity", "confirmation"):
        assert expected[name].keys() <= confirmed[name].keys(), name
    for name in ("object_id", "observed_at", "material", "statement"):
        assert confirmed["confirmation"][name] == expected["confirmation"][name]
    assert confirmed["invocation"].keys() >= expected["invocation"].keys()
    fingerprint = confirmed["identity"]["capability_fingerprint"]
    assert confirmed["identity"]["actor"] == told["invocation"]["actor"] == f"cap:{fingerprint}"
    assert confirmed["confirmation"]["invocation_id"] == told["invocation"]["id"]


@pytest.mark.case("oip:W37")
async def test_the_public_view_shows_commitments_and_no_guessable_hash(tmp_path: Path) -> None:
    async with testing.a_node(tmp_path / "home", facets=door.FACETS) as node:
        told = (await run_as_owner(node, "ECHO", "hello")).json()
        answer = await node.get(target(confirm=told["invocation"]["id"]))
        shown = answer.json()["integrity"]["fingerprints"]
        row = await node.node.database.read(
            lambda reader: reader.one("select salt from ledger_event order by id limit 1")
        )
    bare = hashlib.sha256(b"hello").hexdigest()
    assert row is not None
    assert told["invocation"]["fingerprints"]["input"] == bare
    assert bare not in answer.body.decode()
    assert "hello" not in answer.body.decode()
    assert shown["input"] != shown["output"]
    salt = bytes(row.salt).hex()
    for name in ("input", "output"):
        assert shown[name] == hashlib.sha256(f"{salt}␟{name}␟{bare}".encode()).hexdigest()


async def test_what_never_ran_is_not_confirmed(home: RunningNode) -> None:
    expected = vector("confirm-unknown")
    answer = await home.get(target(confirm="inv_doesnotexist"))
    body = answer.json()
    assert answer.status == expected.pop("_http_status")
    assert {name: body[name] for name in expected} == expected


@pytest.mark.case("oip:W35")
async def test_invocation_ids_cannot_be_guessed(home: RunningNode) -> None:
    ids = [(await run_as_owner(home, "NOW")).json()["invocation"]["id"] for _ in range(20)]
    assert all(re.fullmatch(r"inv_[A-Za-z0-9_-]{24}", each) for each in ids)
    assert len({each[-16:] for each in ids}) == 20  # 96 bits after the 48 of the instant, which stands still here


async def test_affordances_follow_the_credential(home: RunningNode) -> None:
    held = await token(home)

    def moves(told: dict[str, Any]) -> set[str]:
        return {each["op"] for each in told["affordances"]["operations"]}

    public = (await home.get(target(key="NOW"))).json()["_self"]
    assert (moves(public), public["affordances"]["computed_for"]) == ({"contract", "confirm"}, "public")
    assert moves((await run_as_owner(home, "NOW")).json()) == {"contract", "confirm", "registry", "invoke", "shape"}
    granted = (await run(home, held)).json()
    assert moves(granted) == {"contract", "confirm", "registry", "explain", "invoke", "shape"}


async def test_no_answer_but_the_mint_holds_a_token(home: RunningNode) -> None:
    told = await mint(home)
    held = told["share_token"]
    assert TOKEN_IN_TEXT.search(json.dumps(told))
    answers = [
        await home.get(target(**asked, share=held)) for asked in ({"key": "NOW"}, {"explain": 1}, {"registry": 1})
    ]
    for answer in (*answers, await run(home, held), await run(home, held, "UPPER")):
        assert not TOKEN_IN_TEXT.search(answer.body.decode())


async def test_a_dry_run_answers_as_in_the_vector(home: RunningNode) -> None:
    expected = vector("shape-response")
    told = (await run_as_owner(home, "NOW", shape=True)).json()
    assert told.keys() >= expected.keys() - {"_note"}
    assert told["result"] == 'SHAPED:fn NOW([""])'
    for name in ("ok", "ran", "kind", "cost", "yield"):
        assert told[name] == expected[name]
    assert {name: told["proof"][name] for name in ("ok", "shaped", "invocation_id", "confirm", "receipt")} == {
        name: expected["proof"][name] for name in ("ok", "shaped", "invocation_id", "confirm", "receipt")
    }


# --- repeats (OIP 1.2 §16.9) --------------------------------------------------------------------------------------


class Slowly(Plugin):
    """Something outside that takes its time, and something that counts."""

    facet = Facet(name="slowly", summary="Takes its time.")
    started, released = asyncio.Event(), asyncio.Event()
    count = 0

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        yield Object("SLOW", "Waits.", Effect.EXECUTION, Text, Outside(self.wait))
        yield Object("COUNT", "Counts.", Effect.EXECUTION, Text, Inside(lambda *_: self.counted()))

    async def wait(self, given: Text, operation: Any) -> str:
        self.started.set()
        await self.released.wait()
        return "done"

    def counted(self) -> str:
        type(self).count += 1
        return str(self.count)


@pytest.fixture
async def slow(tmp_path: Path) -> Any:
    class Fresh(Slowly):
        started, released = asyncio.Event(), asyncio.Event()
        count = 0

    facets = {**door.FACETS, "slowly": {}}
    async with testing.a_node(tmp_path / "home", facets=facets, plugins={"slowly": Fresh}) as node:
        yield node, Fresh


async def post(node: RunningNode, key: str, name: str, body: str = "") -> testing.HttpAnswer:
    headers = {"x-terminal-key": node.owner_key, "idempotency-key": name}
    return await node.post(DOOR, {"key": key, "body": body}, headers)


async def test_a_named_call_runs_once_and_answers_the_same(slow: Any) -> None:
    node, counter = slow
    first, second = await post(node, "COUNT", "a"), await post(node, "COUNT", "a")
    assert first.body == second.body
    assert ("idempotency-replayed" in first.headers, second.headers["idempotency-replayed"]) == (False, "true")
    assert counter.count == 1
    assert (await post(node, "COUNT", "b")).json()["result"] == "2"


async def test_only_claimed_answers_are_counted_as_handed_out(slow: Any) -> None:
    """A group is marked when all its claimed answers have left; an unclaimed one must not end the count."""
    node, _ = slow
    node.node.handout.take()
    await run_as_owner(node, "COUNT")
    assert (node.node.handout.take(), node.node.handout._waiting) == ([], {})
    await post(node, "COUNT", "a")
    assert node.node.handout._waiting == {}


async def test_a_refused_call_is_refused_again_the_same(slow: Any) -> None:
    node, _ = slow
    held = await token(node, uses=5)
    headers = {"authorization": f"Bearer {held}", "idempotency-key": "one"}
    answers = [await node.post(DOOR, {"key": "UPPER"}, headers) for _ in range(2)]
    assert [answer.status for answer in answers] == [401, 401]
    assert answers[0].body == answers[1].body


async def test_a_name_for_another_call_is_refused(slow: Any) -> None:
    node, counter = slow
    await post(node, "COUNT", "a", "one")
    for answer in (await post(node, "COUNT", "a", "two"), await post(node, "NOW", "a", "one")):
        assert (answer.status, answer.json()["error"]) == (409, "idempotency_key_reused")
    assert counter.count == 1


async def test_names_belong_to_their_caller(slow: Any) -> None:
    node, counter = slow
    held = await token(node, key="COUNT")
    await post(node, "COUNT", "a")
    other = await node.post(DOOR, {"key": "COUNT"}, {"authorization": f"Bearer {held}", "idempotency-key": "a"})
    assert (other.json()["result"], counter.count) == ("2", 2)


async def test_names_that_are_none(slow: Any) -> None:
    node, counter = slow
    for name in ("", "x" * 129, "with space", "tab\t."):
        answer = await post(node, "COUNT", name)
        assert (answer.status, answer.json()["error"]) == (400, "bad_idempotency_key")
    assert counter.count == 0


async def test_a_repeat_of_a_call_still_running_is_told_so_as_in_the_vector(slow: Any) -> None:
    node, running = slow
    first = asyncio.create_task(post(node, "SLOW", "a"))
    await asyncio.wait_for(running.started.wait(), 5)
    second = await post(node, "SLOW", "a")
    running.released.set()
    done, told, expected = (await first).json(), second.json(), vector("deduped-response")
    assert second.status == 200
    assert told.keys() == expected.keys() | {"receipt"}
    for name in ("ok", "ran", "already_ran", "deduped", "note"):
        assert told[name] == expected[name]
    assert told["proof"]["invocation_id"] == done["invocation"]["id"]
    assert (await node.get(target(confirm=done["invocation"]["id"]))).json()["confirmed"] is True


def test_the_deduped_answer_is_that_of_the_vector() -> None:
    expected = vector("deduped-response")
    told = deduped(expected["proof"]["invocation_id"], Links("https://home.example"))
    expected["proof"]["receipt"] = expected["proof"]["confirm"]
    assert told == expected


async def test_a_failed_object_is_a_run_that_says_so(slow: Any) -> None:
    node, running = slow
    task = asyncio.create_task(post(node, "SLOW", "a"))
    await asyncio.wait_for(running.started.wait(), 5)
    running.released.set()
    done = (await task).json()
    assert (done["ok"], done["result"], done["invocation"]["event_id"].startswith("entry:")) == (True, "done", True)
