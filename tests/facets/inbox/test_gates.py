"""What an invoke runs, under what, and how its result is told; with and without capabilities (OIP 1.2 §8.4, §8.5)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest

from deedbox import (
    Intent,
    OwnerKey,
    Plugin,
)
from deedbox.canonical import canonical, sha256_hex
from deedbox.web import JsonPhrasing
from deedbox_basics import Basics
from deedbox_capabilities import Capabilities
from tests.facets.inbox.conftest import Start
from tests.facets.inbox.scene import ALICE, MALLORY, NODE, Home, vector
from tests.facets.inbox.tools import Tools

TOKEN = vector("envelope-invoke")["capability"]


FACETS: dict[str, dict[str, Any]] = {"capabilities": {}, "basics": {}, "tools": {}}
PLUGINS: dict[str, type[Plugin]] = {"capabilities": Capabilities, "basics": Basics, "tools": Tools}


@pytest.fixture
async def granting(start: Start) -> Home:
    """A home with capabilities, basic objects and tools."""
    return await start(facets=FACETS, plugins=PLUGINS)


async def granted(home: Home, key: str, aud: str = ALICE, **terms: Any) -> str:
    """A capability of the owner's making."""
    intent = Intent(
        surface="test",
        at=home.clock.now(),
        object_key="CAPABILITY_MINT",
        arguments={"scope": "row", "key": key, "aud": aud, **terms},
        phrasing=JsonPhrasing(),
        credential=OwnerKey(home.running.owner_key),
    )
    reply = await home.running.node.govern(intent)
    assert reply.outcome.ok, reply.outcome
    return str(reply.outcome.value["share_token"])


def tools(home: Home) -> Tools:
    (found,) = (each for each in home.running.node.host.plugins if isinstance(each, Tools))
    return found


# --- without capabilities ----------------------------------------------------------------------------------------


async def test_without_the_facet_nothing_runs_and_the_answer_says_why(start: Start) -> None:
    """Not even what anybody might read: authority comes with a capability and from nowhere else."""
    home = await start(facets={"tools": {}}, plugins={"tools": Tools})
    for key in ("OPEN", "COUNT", "QUERY", "PROPOSE", "CANCEL", "FED_LEDGER", "NOTHING_LIKE_IT"):
        heard = await home.say("invoke", {"key": key, "args": ""})
        assert (heard.reason, heard.verdict) == ("capability_required", ("denied:capability_required", 401))
        heard = await home.say("invoke", {"key": key, "args": ""}, capability=TOKEN)
        assert (heard.reason, heard.verdict) == ("capability_invalid", ("denied:capability_invalid", 401))
        assert (heard.body["invoked"], heard.body["ran"]) == (False, False)
    assert tools(home).runs == 0


async def test_what_to_do_without_a_capability_is_said(home: Home) -> None:
    heard = await home.say("invoke", {"key": "NOW", "args": ""})
    assert "propose" in heard.body["next_step"]


@pytest.mark.case("oip:W51")
async def test_key_and_args_are_strings(granting: Home) -> None:
    """Judged before any gate; a missing one and null are as nothing."""
    token = await granted(granting, "COUNT")
    for body in ({"key": 7}, {"key": ["COUNT"]}, {"key": "COUNT", "args": {"a": 1}}, {"key": "COUNT", "args": 0}):
        for capability in (token, None):
            heard = await granting.say("invoke", body, capability=capability)
            assert (heard.reason, heard.verdict) == ("bad_args", ("denied:bad_args", 400))
            assert (heard.body["invoked"], heard.body["ran"]) == (False, False)
    assert tools(granting).runs == 0
    heard = await granting.say("invoke", {"key": "COUNT", "args": None}, capability=token)
    assert heard.body["result"] == "1:"
    heard = await granting.say("invoke", {"args": "x"}, capability=token)
    assert heard.reason == "scope_mismatch"


async def test_a_long_name_is_no_other_objects(granting: Home) -> None:
    token = await granted(granting, "COUNT")
    for key in ("COUNT" + "x" * 60_000, "COUNT\0", "count"):
        heard = await granting.say("invoke", {"key": key}, capability=token)
        assert heard.reason == "scope_mismatch"
    rows = await granting.rows("select payload from ledger_payload order by seq desc limit 3")
    assert max(len(bytes(row.payload)) for row in rows) < 2_000


# --- under a capability ------------------------------------------------------------------------------------------


@pytest.mark.case("oip:F2", "oip:W38", "oip:W39")
async def test_a_run_is_told_so_that_the_peer_can_check_it(granting: Home) -> None:
    token = await granted(granting, "UPPER")
    sent = granting.letter("invoke", {"key": "UPPER", "args": "hello"}, capability=token)
    heard = await granting.post(sent)
    told, hashes = heard.body, heard.body["cross_ledger"]
    assert (heard.kind, heard.verdict) == ("result", ("invoked", 200))
    assert (told["invoked"], told["ran"], told["ok"], told["object"], told["agent"]) == (
        True,
        True,
        True,
        "UPPER",
        NODE,
    )
    assert (told["result"], told["result_preview"]) == ("HELLO", "HELLO")
    assert hashes == {
        "request_body_sha256": sent["body_sha256"],
        "input_sha256": sha256_hex(canonical({"key": "UPPER", "args": "hello"})),
        "argument_sha256": sha256_hex("hello"),
        "output_sha256": sha256_hex("HELLO"),
    }
    invocation = told["invocation_id"]
    assert told["confirm"] == f"https://home.example/api/dispatch?confirm={invocation}"
    assert told["receipt"] == f"https://home.example/api/dispatch?confirm={invocation}"
    record = await granting.record(sent["id"])
    assert (record["verdict"], record["status"], record["reason"]) == ("invoked", 200, None)
    assert (record["invocation_id"], record["audience"]) == (invocation, ALICE)
    assert record["capability_fingerprint"] == told["capability_fingerprint"]
    thread = await granting.thread()
    assert (thread["receipts"], thread["messages"][1]["verdict"]) == ([invocation], "invoked")
    assert thread["messages"][1]["invocation_id"] == invocation
    assert set(heard.members["receipt"]) == {"id", "seq", "leaf", "checkpoint"}


@pytest.mark.case("oip:N2", "oip:F6")
async def test_of_many_copies_of_an_invoke_one_runs(granting: Home) -> None:
    token = await granted(granting, "COUNT", uses=3)
    sent = granting.letter("invoke", {"key": "COUNT", "args": ""}, capability=token)
    heard = await asyncio.gather(*(granting.post(sent) for _ in range(6)))
    (ran,) = (each for each in heard if each.kind == "result")
    assert tools(granting).runs == 1
    original = {"response_id": ran.members["id"], "invocation_id": ran.body["invocation_id"]}
    assert [each.body["original"] for each in heard if each.kind == "error"] == [original] * 5
    (use,) = await granting.rows("select uses_consumed from capabilities_capability")
    assert use.uses_consumed == 1


async def test_a_copy_that_comes_while_the_first_runs_is_refused(granting: Home) -> None:
    token = await granted(granting, "SLOW")
    sent = granting.letter("invoke", {"key": "SLOW", "args": ""}, capability=token)
    running = asyncio.create_task(granting.post(sent))
    while not tools(granting).runs:  # noqa: ASYNC110  # the tool counts its runs
        await asyncio.sleep(0.005)
    assert (await granting.post(sent)).reason == "replay_rejected"
    tools(granting).leave.set()
    heard = await running
    assert (heard.body["ok"], heard.body["result"], heard.verdict) == (True, "at last", ("invoked", 200))
    assert tools(granting).runs == 1


@pytest.mark.case("oip:W40")
async def test_a_run_that_failed_is_told_by_ok(granting: Home) -> None:
    for key, result in (
        ("BREAK", "ERR:object:runner_failed"),
        ("FAILING", '{"error":"the provider is down","ok":false}'),
        ("UNPRINTABLE", "ERR:object:unprintable"),
    ):
        sent = granting.letter("invoke", {"key": key}, capability=await granted(granting, key))
        heard = await granting.post(sent)
        assert (heard.kind, heard.verdict) == ("result", ("invoked", 200))
        told = heard.body
        assert (told["invoked"], told["ran"], told["ok"], told["result"]) == (True, True, False, result)
        record = await granting.record(sent["id"])
        assert (record["verdict"], record["status"], record["reason"]) == ("invoked", 200, None)
        assert record["invocation_id"] == told["invocation_id"]


async def test_an_object_that_refuses_is_a_refusal(granting: Home) -> None:
    heard = await granting.say("invoke", {"key": "REFUSE"}, capability=await granted(granting, "REFUSE"))
    assert (heard.kind, heard.reason, heard.verdict) == ("error", "not_today", ("denied:not_today", 409))


@pytest.mark.case("oip:W38")
async def test_a_result_goes_whole_or_not_at_all(granting: Home) -> None:
    """What fits is counted in the bytes a peer will count, sealed or not."""
    token = await granted(granting, "LONG")
    for size, sealed, whole in ((30_000, False, True), (33_000, False, False), (100_000, False, False),
                                (23_000, True, True), (25_000, True, False)):  # fmt: skip
        body = {"key": "LONG", "args": str(size)}
        make = granting.sealed_letter if sealed else granting.letter
        heard = await granting.post(make("invoke", body, capability=token))
        assert ("result" in heard.body, heard.body.get("result_omitted")) == (whole, None if whole else True)
        assert heard.body["result_preview"] == "é" * 400
        assert heard.body["cross_ledger"]["output_sha256"] == sha256_hex("é" * size)


async def test_a_preview_holds_no_half_character(granting: Home) -> None:
    heard = await granting.say("invoke", {"key": "HALF"}, capability=await granted(granting, "HALF"))
    assert heard.body["result_preview"] == "?" + "x" * 399
    assert len(heard.body["result"]) == 401


async def test_a_fixed_body_is_the_argument(granting: Home) -> None:
    token = await granted(granting, "UPPER", body_fixed="fixed")
    heard = await granting.say("invoke", {"key": "UPPER", "args": ""}, capability=token)
    assert heard.body["result"] == "FIXED"
    assert heard.body["cross_ledger"]["input_sha256"] == sha256_hex(canonical({"key": "UPPER", "args": "fixed"}))
    assert heard.body["cross_ledger"]["argument_sha256"] == sha256_hex("fixed")


async def test_the_gates_answer_in_their_words(granting: Home) -> None:
    token = await granted(granting, "COUNT", uses=1)
    unbound = await granted(granting, "COUNT", aud="")
    cases = [
        (ALICE, "COUNT", TOKEN, "capability_invalid", 401),
        (ALICE, "COUNT", "sh.garbage", "capability_invalid", 401),
        (ALICE, "COUNT", unbound, "audience_binding_required", 403),
        (MALLORY, "COUNT", token, "audience_mismatch", 403),
        (ALICE, "NOW", token, "scope_mismatch", 403),
        (ALICE, "PROPOSE", token, "scope_mismatch", 403),
        (ALICE, "COUNT", token, None, 200),
        (ALICE, "COUNT", token, "token_exhausted", 429),
    ]
    for sender, key, capability, reason, status in cases:
        sent = granting.letter("invoke", {"key": key, "args": ""}, sender, capability=capability)
        heard = await granting.post(sent)
        assert (heard.reason, heard.verdict[1]) == (reason, status)
        assert heard.verdict[0] == (f"denied:{reason}" if reason else "invoked")
        assert (await granting.record(sent["id"]))["status"] == status
    assert tools(granting).runs == 1


@pytest.mark.case("oip:F3")
async def test_a_refused_invoke_spends_its_id(granting: Home) -> None:
    """Everything after authentication does (decision 31)."""
    token = await granted(granting, "COUNT")
    sent = granting.letter("invoke", {"key": "COUNT"}, MALLORY, capability=token)
    heard = await granting.post(sent)
    assert (heard.reason, heard.body["ran"]) == ("audience_mismatch", False)
    assert (await granting.post(sent)).reason == "replay_rejected"


async def test_in_a_cancelled_conversation_no_use_is_spent(granting: Home) -> None:
    token = await granted(granting, "COUNT", uses=1)
    await granting.say("cancel", conversation="conv_over")
    heard = await granting.say("invoke", {"key": "COUNT"}, capability=token, conversation="conv_over")
    assert heard.reason == "conversation_cancelled"
    assert (await granting.say("invoke", {"key": "COUNT"}, capability=token)).body["result"] == "1:"


@pytest.mark.case("oip:W12")
async def test_a_capability_may_travel_inside_what_is_sealed(granting: Home) -> None:
    token = await granted(granting, "UPPER")
    body = {"key": "UPPER", "args": "hush"}
    sent = granting.sealed_letter("invoke", body, inner_capability=token)
    assert sent["capability"] is None
    heard = await granting.post(sent)
    assert (heard.sealed, heard.body["result"]) == (True, "HUSH")
    outer = granting.sealed_letter("invoke", body, inner_capability=token, capability=TOKEN)
    assert (await granting.post(outer)).reason == "capability_invalid", "the one in the open is the one that counts"
    assert (await granting.post(granting.letter("invoke", {**body, "_oip": {"capability": token}}))).reason == (
        "capability_required"
    )


@pytest.mark.case("oip:N4")
async def test_a_stolen_sealed_invoke_tells_nothing_of_what_it_asked(granting: Home) -> None:
    """Not even whether the thief's own capability would have covered it."""
    original = granting.sealed_letter("invoke", {"key": "UPPER", "args": "hush"}, bound=False)
    await granting.post(original)
    token = await granted(granting, "UPPER", aud=MALLORY)
    stolen = granting.letter("invoke", None, MALLORY, enc=original["enc"], capability=token)
    heard = await granting.post(stolen)
    assert heard.reason == "decrypt_refused"
    assert "UPPER" not in json.dumps(heard.body)
    (use,) = await granting.rows("select uses_consumed from capabilities_capability")
    assert use.uses_consumed == 0


@pytest.mark.case("oip:N10")
async def test_members_beside_key_and_args_decide_nothing(granting: Home) -> None:
    token = await granted(granting, "UPPER")
    extra = {"actor": "owner", "noLog": True, "trace": "x", "replay_of": "inv_forged", "dry_run": True}
    sent = granting.letter("invoke", {"key": "UPPER", "args": "x", **extra}, capability=token)
    heard = await granting.post(sent)
    assert heard.body["result"] == "X"
    row = (await granting.rows("select payload from ledger_payload order by seq desc limit 1"))[0]
    said = orjson.loads(bytes(row.payload))
    assert (said["actor"], said["invocation"]) == (ALICE, heard.body["invocation_id"])
    assert not {"replay_of", "trace"} & set(said)


TABLES = {
    "sqlite": "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'",
    "postgresql": "select tablename as name from pg_tables where schemaname = 'public'",
}


async def test_no_token_is_written_down(granting: Home) -> None:
    token = await granted(granting, "COUNT")
    await granting.say("invoke", {"key": "COUNT"}, capability=token)
    await granting.say("invoke", {"key": "COUNT"}, MALLORY, capability=token)
    await granting.post(granting.sealed_letter("invoke", {"key": "COUNT"}, inner_capability=token))
    tables = await granting.rows(TABLES[granting.running.kernel.database._writer._connection.engine])
    assert len(tables) > 10
    for table in tables:
        for row in await granting.rows(f"select * from {table.name}"):
            assert token not in str([bytes(value) if isinstance(value, bytes) else value for value in row])


# --- proposals ---------------------------------------------------------------------------------------------------


async def test_a_proposal_that_waits_for_a_person_says_so(granting: Home) -> None:
    sent = granting.letter("propose", {"key": "COUNT", "args": "", "held": True, "summary": "please"})
    heard = await granting.post(sent)
    assert (heard.kind, heard.verdict) == ("event", ("acknowledged", 200))
    assert (heard.body["received"], heard.body["state"]) == (True, "pending")
    assert heard.body["note"] == "the owner will look at it"
    assert [each["msg_id"] for each in (await granting.thread())["open_commitments"]] == [sent["id"]]
    assert tools(granting).runs == 0
