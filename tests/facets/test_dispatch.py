"""The door: what may pass, what is never obeyed, and what a refusal says."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest

from deedbox import app, testing
from deedbox.testing import FrozenClock, HttpAnswer, RunningNode
from tests.facets import door
from tests.facets.door import DOOR, as_owner, mint, record, run, run_as_owner, target, token, vector

ERRORS = vector("errors")


def agrees(answer: HttpAnswer, name: str, **ours: Any) -> None:
    """The answer has the status and the members of a vector, but for those that depend on us."""
    expected = ERRORS[name]
    body = answer.json()
    assert answer.status == expected["status"], body
    wanted = expected["body"] | ours
    assert {member: body.get(member) for member in wanted} == wanted


async def events_and_entries(node: RunningNode) -> int:
    await node.node.database.run(lambda unit: None)
    asked = "select (select count(*) from ledger_entry) + (select count(*) from ledger_event) as written"
    found = await node.node.database.read(lambda reader: reader.one(asked))
    assert found is not None
    return int(found.written)


# --- finding ------------------------------------------------------------------------------------------------------


async def test_a_bare_get_is_a_manifest(home: RunningNode) -> None:
    answer = await home.get(DOOR)
    told = answer.json()
    assert (answer.status, told["protocol"], told["version"]) == (200, "OIP", "1.2.0")
    assert told["endpoints"]["dispatch"] == "https://alpha.test/api/dispatch"


async def test_the_registry_lists_what_can_be_asked_for(home: RunningNode) -> None:
    expected = vector("registry")
    told = (await home.get(target(registry=1))).json()
    assert expected.keys() <= told.keys()
    assert told["objects"][0].keys() == expected["objects"][0].keys()
    assert (await home.get(target(registry=1, category="none"))).json()["count"] == 0


@pytest.mark.case("oip:C8", "oip:C44")
async def test_a_near_miss_is_refused_with_what_may_have_been_meant(home: RunningNode) -> None:
    suggestion = {"key": "NOW", "read": "https://alpha.test/api/dispatch?key=NOW"}
    for answer in (
        await run_as_owner(home, "NWO"),
        await as_owner(home, invoke="NWO"),
        await home.get(target(key="NWO")),
    ):
        agrees(answer, "unknown_key", did_you_mean=[suggestion])
    deploy = (await run_as_owner(home, "DEPLOY_LEAS")).json()
    assert (deploy["error"], deploy["did_you_mean"], "invocation" in deploy) == ("unknown_key", [], False)


async def test_what_is_not_listed_cannot_be_named(home: RunningNode) -> None:
    for key, body in (("CAPABILITY_MINT", '{"scope":"read"}'), ("CONFIRM", '{"invocation":"inv_x"}')):
        answer = await run_as_owner(home, key, body)
        assert (answer.status, answer.json()["error"], answer.json()["ran"]) == (404, "unknown_key", False)
    assert (await home.get(target(key="CONFIRM"))).status == 404


# --- credentials --------------------------------------------------------------------------------------------------


async def test_a_token_that_fails_is_answered_as_in_the_vectors(home: RunningNode, clock: FrozenClock) -> None:
    held = await token(home, ttl=60)
    altered = held[:-1] + ("A" if held[-1] != "A" else "B")
    for bad in (altered, "nonsense", held.replace(".0.", ".9.")):
        agrees(await run(home, bad), "token_corrupted")
        agrees(await home.get(target(invoke="NOW", share=bad)), "token_corrupted")
    clock.advance(61)
    late = await run(home, held)
    agrees(late, "token_expired")
    assert "Nothing ran" in late.headers["x-ms-agent-note"]


async def test_every_place_a_token_may_stand(home: RunningNode) -> None:
    held = await token(home)
    ways: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"authorization": f"bearer {held}"}, {}),
        ({"x-write-token": held}, {}),
        ({"x-block-token": held}, {}),
        ({}, {"share": held}),
        ({}, {"capability_token": held}),
        ({"authorization": f"Bearer {held}"}, {"share": "another"}),
    ]
    for headers, members in ways:
        answer = await home.post(DOOR, {"key": "NOW", **members}, headers)
        assert answer.status == 200, (headers.keys(), members.keys())
    in_url = await home.post(target(share=held), {"key": "NOW"}, {"authorization": "Bearer nonsense"})
    assert in_url.status == 200


@pytest.mark.case("oip:W2")
@pytest.mark.parametrize("name", ["tk", "terminal_key"])
async def test_the_owners_key_in_a_url_is_refused(home: RunningNode, name: str) -> None:
    for asked in ({"mint_share": 1, "scope": "read"}, {"registry": 1}):
        answer = await home.get(target(**asked, **{name: home.owner_key}))
        assert (answer.status, answer.json()["error"]) == (401, "owner_key_in_url")
    posted = await home.post(target(**{name: home.owner_key}), {"key": "NOW"})
    assert (posted.status, home.owner_key in posted.body.decode()) == (401, False)


async def test_a_wrong_owners_key_is_nobody(home: RunningNode) -> None:
    answer = await home.post(DOOR, {"key": "NOW"}, {"x-terminal-key": "ok_" + "A" * 43})
    assert (answer.status, answer.json()["error"]) == (401, "unauthorized")


@pytest.mark.case("oip:W1")
async def test_nothing_happens_when_nobody_has_asked_yet(home: RunningNode) -> None:
    told = await mint(home)
    before = await events_and_entries(home)
    asked = target(invoke="NOW", share=told["share_token"])
    ahead: tuple[dict[str, str], ...] = (
        {"purpose": "prefetch"},
        {"sec-purpose": "prefetch;prerender"},
        {"x-moz": "prefetch"},
    )
    for headers in ahead:
        assert (await home.request("GET", asked, headers=headers)).status == 204
        assert (
            await home.request("GET", target(mint_share=1), headers={**headers, "x-terminal-key": home.owner_key})
        ).status == 204
    assert (await home.request("HEAD", asked)).status == 204
    assert (await record(home, told["fingerprint"]))["uses_consumed"] == 0
    assert await events_and_entries(home) == before


@pytest.mark.case("oip:W1")
async def test_answers_to_credentials_are_kept_by_nobody(home: RunningNode) -> None:
    held = await token(home)
    answers = [await run(home, held), await run(home, held, "UPPER"), await as_owner(home, mint_share=1)]
    answers += [await home.get(target(explain=1, share=held)), await home.get(target(foo=1))]
    for answer in (*answers, await home.post(DOOR, b"{")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.case("oip:W1", "fed:E5")
async def test_the_access_log_shows_no_credential(home: RunningNode, capfd: pytest.CaptureFixture[str]) -> None:
    held = await token(home)
    logging = app.build(home.node)
    query = f"invoke=NOW&share={held}&tk={home.owner_key}&body=private".encode()
    scope = {"type": "http", "method": "GET", "path": DOOR, "raw_path": DOOR.encode(), "query_string": query}
    scope |= {"headers": [], "client": ("127.0.0.1", 1), "http_version": "1.1", "scheme": "http", "root_path": ""}

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None: ...

    await logging({**scope, "state": {}}, receive, send)
    await asyncio.sleep(0)  # lines are written when a turn of the loop ends
    line = capfd.readouterr().err
    assert json.loads(line.strip().splitlines()[-1])["status"] == 401
    for secret in (held, held.rpartition(".")[2], home.owner_key, "private"):
        assert secret not in line


# --- what a body cannot do ----------------------------------------------------------------------------------------


@pytest.mark.case("oip:W23")
async def test_there_is_no_emit(home: RunningNode) -> None:
    held = await token(home, scope="act", key="", uses=9)
    answer = await home.post(DOOR, {"emit": "[UPPER]x[/UPPER]"}, {"authorization": f"Bearer {held}"})
    assert (answer.status, answer.json()["error"]) == (400, "key required")
    both = (await run(home, held, "NOW", emit="[UPPER]x[/UPPER]")).json()
    assert both["invocation"]["object_id"] == "NOW"


@pytest.mark.case("oip:W24", "oip:N10", "oip:C15")
async def test_a_body_sets_neither_actor_nor_time_nor_lineage(home: RunningNode) -> None:
    held = await token(home)
    forged: dict[str, Any] = {"actor": "owner:me", "noLog": True, "replay_of": "inv_x", "trace": "t", "routeOnly": True}
    forged |= {"now": "1999-01-01", "ts": "1999-01-01T00:00:00Z", "id": "inv_mine", "runner": "x"}
    answer = await run(home, held, **forged)
    event = answer.json()["invocation"]
    assert event["actor"].startswith("cap:cap_")
    assert event["intent"]["authority_kind"] == "recorded_capability"
    assert (event["replay_of"], event["repairs"]) == (None, None)
    assert event["ts"].endswith("+00:00")
    assert "1999" not in answer.body.decode()
    assert json.loads(answer.json()["result"])["today"] == "2026-01-02"
    confirmed = (await home.get(target(confirm=event["id"]))).json()
    assert confirmed["identity"]["actor"] == event["actor"]
    assert len(await door.entries(home)) == 2


async def test_lineage_this_door_does_not_keep_is_refused_and_not_ignored(home: RunningNode) -> None:
    asked: list[dict[str, Any]] = [{"replay": "inv_x"}, {"key": "NOW", "repairs": "inv_x"}, {"work": {}}]
    for members in (*asked, {"challenge": "inv_x"}):
        answer = await home.post(DOOR, members, {"x-terminal-key": home.owner_key})
        assert (answer.status, answer.json()["error"], answer.json()["ran"]) == (400, "unrecognized_request", False)


@pytest.mark.case("oip:W51")
async def test_a_body_that_is_no_string_becomes_json_text(home: RunningNode) -> None:
    bodies = {'{"a":[true,null],"b":1}': {"b": 1, "a": [True, None]}, '[1,"x"]': [1, "x"], "7": 7, "": None}
    for text, body in bodies.items():
        assert (await run_as_owner(home, "ECHO", body)).json()["result"] == text


async def test_what_is_claimed_is_kept_as_a_claim(home: RunningNode) -> None:
    held = await token(home, actor="alice@peer.example")
    said = {"on_behalf_of": "alice > bob > carol", "authorized_by": f"the user said so with {held}"}
    event = (await run(home, held, **said)).json()["invocation"]
    assert event["on_behalf_of"]["claimed_chain"] == ["alice", "bob", "carol"]
    assert event["on_behalf_of"]["minted_for"] == "alice@peer.example"
    assert event["intent"]["current_user_request"]["verified_by_credential"] is False
    assert held not in json.dumps(event)
    entry = (await door.entries(home))[-1]
    assert entry["on_behalf_of"] == ["alice", "bob", "carol"]
    for form in (["alice", 3, "bob"], '["alice","bob"]'):
        chain = (await run(home, held, on_behalf_of=form)).json()["invocation"]["on_behalf_of"]["claimed_chain"]
        assert chain == ["alice", "bob"]
    many = (await run(home, held, on_behalf_of=["x" * 200] * 20)).json()["invocation"]["on_behalf_of"]
    assert many["claimed_chain"] == ["x" * 120] * 8


# --- malformed ----------------------------------------------------------------------------------------------------


async def test_what_no_action_names_is_refused_as_in_the_vector(home: RunningNode) -> None:
    actions = ["confirm", "explain", "invoke", "key", "mint_share", "registry", "revoke"]
    hint = "no known action; nothing ran"
    agrees(await home.get(target(foo=1)), "unrecognized", recognized_actions=actions, hint=hint)
    for asked in ("?map=1", "?ping=1&invoke=NOW", "?share=x", "?work=1&key=NOW"):
        assert (await home.get(DOOR + asked)).json()["error"] == "unrecognized_request"


BAD_QUERIES = [
    ("invoke=NOW&key=NOW", 400, "ambiguous_request"),
    ("invoke=NOW&invoke=ECHO", 400, "ambiguous_request"),
    ("revoke=cap_0&mint_share=1", 400, "ambiguous_request"),
    ("invoke=", 400, "invoke key required"),
    ("confirm=", 400, "confirm id required"),
    ("key=", 400, "key required"),
    ("revoke=", 400, "bad fingerprint"),
    ("invoke=NOW&body=%ff%fe", 400, "bad_query"),
    ("&".join(f"a{each}=1" for each in range(100)), 400, "bad_query"),
]
BAD_BODIES = [
    (b"{", 400, "invalid json"),
    (b'"NOW"', 400, "invalid json"),
    (b"\xff", 400, "invalid json"),
    (b"", 400, "invalid json"),
    (b"{}", 400, "key required"),
    (b'{"key":7}', 400, "key required"),
    (b'{"key":"NOW","key":"UPPER"}', 400, "duplicate_member"),
    (b'{"key":"NOW","body":1e400}', 400, "number_out_of_range"),
    (b'{"key":"NOW","body":' + b"[" * 64 + b"]" * 64 + b"}", 400, "too_deep"),
    (b'{"key":"NOW","mint":{}}', 400, "ambiguous_request"),
    (b'{"mint":"act"}', 400, "bad_arguments"),
]


async def test_queries_that_are_refused(home: RunningNode) -> None:
    answers = [(await home.as_owner("GET", f"{DOOR}?{query}"), status, code) for query, status, code in BAD_QUERIES]
    assert [(got.status, got.json()["error"]) for got, _, _ in answers] == [(each[1], each[2]) for each in answers]


async def test_bodies_that_are_refused(home: RunningNode) -> None:
    owner = {"x-terminal-key": home.owner_key}
    answers = [(await home.post(DOOR, body, owner), status, code) for body, status, code in BAD_BODIES]
    assert [(got.status, got.json()["error"]) for got, _, _ in answers] == [(each[1], each[2]) for each in answers]


async def test_a_body_that_is_too_large_is_not_read(home: RunningNode) -> None:
    head = b"POST /api/dispatch HTTP/1.1\r\nhost: alpha.test\r\nconnection: close\r\ncontent-length: 131073\r\n\r\n"
    answer = await home.raw(head)
    assert (answer.status, answer.json()["error"], answer.json()["limit"]) == (413, "too_large", 131_072)


async def test_compressed_bodies_are_refused(home: RunningNode) -> None:
    answer = await home.post(DOOR, b"\x1f\x8b", {"content-encoding": "gzip"})
    assert answer.status == 415


async def test_methods(home: RunningNode) -> None:
    options = await home.request("OPTIONS", DOOR)
    assert (options.status, options.headers["access-control-allow-methods"]) == (204, "GET, POST, OPTIONS")
    assert (options.headers["access-control-allow-headers"], options.headers["access-control-max-age"]) == (
        "*",
        "86400",
    )
    put = await home.request("PUT", DOOR, b"{}")
    assert (put.status, put.headers["allow"]) == (405, "GET, HEAD, POST, OPTIONS")


async def test_too_many_requests_of_one_address(tmp_path: Any) -> None:
    limits = {"dispatch": {"shield": "3/min"}}
    async with testing.a_node(tmp_path / "home", facets=door.FACETS, limits=limits, clock=FrozenClock()) as node:
        answers = [await node.get(target(registry=1)) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 0


async def test_a_get_runs_what_a_post_runs(home: RunningNode) -> None:
    held = await token(home, scope="rows", keys="ECHO,UPPER")
    answer = await home.get(f"{DOOR}?invoke=ECHO&body={quote('a b|é&=')}&share={held}")
    assert answer.json()["result"] == "a b|é&="


@pytest.mark.parametrize("facet", ["capabilities", "basics"])
async def test_without_a_facet_its_actions_are_unknown(tmp_path: Any, facet: str) -> None:
    facets = {name: table for name, table in door.FACETS.items() if name != facet}
    async with testing.a_node(tmp_path / "home", facets=facets) as node:
        minted = await as_owner(node, mint_share=1, scope="read")
        ran = await run_as_owner(node, "NOW")
        held = await node.post(DOOR, {"key": "NOW"}, {"authorization": "Bearer sh.1.read.0.AAECAwQFBgcI.x"})
    assert minted.status == (400 if facet == "capabilities" else 200)
    assert ran.status == (404 if facet == "basics" else 200)
    assert held.status in (401, 404)
