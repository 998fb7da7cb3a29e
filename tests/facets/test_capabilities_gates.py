"""The gates in their order, at the door and inside a signed message, and what a use costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deedbox import (
    Arguments,
    Effect,
    Facet,
    Inside,
    Intent,
    Object,
    Plugin,
    Principal,
    Proof,
    Reply,
    Text,
    Unit,
    hookimpl,
    testing,
    web,
)
from deedbox.testing import FrozenClock, RunningNode
from deedbox_capabilities.chain import walk
from deedbox_capabilities.tables import CAPABILITIES
from tests.facets import door
from tests.facets.door import alter, as_owner, mint, record, run, token, vector

PEER = "alice@peer.example"


@dataclass(frozen=True)
class Signed:
    """Stands for an envelope whose sender was proven, or was not."""

    sender: str
    verified: bool = True


class SignedAuthenticator:
    credential = Signed

    def present(self, headers: Mapping[str, str]) -> None:
        return None

    async def prepare(self, node: Any, intent: Intent) -> Proof:
        who = intent.credential
        return Proof(Principal(who.sender, "peer", recognised=who.verified, verified=who.verified))

    def believe(self, unit: Unit, intent: Intent, proof: Proof) -> Principal:
        return proof.principal


class Sum(Arguments):
    one: int
    two: int


class Peers(Plugin):
    facet = Facet(name="peers", summary="Proven senders, and objects to be careful with.")

    @hookimpl
    def deedbox_authenticators(self) -> Iterable[Any]:
        yield SignedAuthenticator()

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        yield Object("DANGER", "Does something.", Effect.EXECUTION, Text, Inside(lambda *_: "done"), sensitive=True)
        yield Object("BROKEN", "Never works.", Effect.EXECUTION, Text, Inside(_break))
        yield Object("SUM", "Adds.", Effect.DISCLOSURE, Sum, Inside(lambda unit, given, _: str(given.one + given.two)))


def _break(unit: Unit, given: Text, operation: Any) -> str:
    raise RuntimeError("on purpose")


@pytest.fixture
async def node(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[RunningNode]:
    facets = {**door.FACETS, "peers": {}}
    async with testing.a_node(tmp_path / "home", facets=facets, plugins={"peers": Peers}, clock=clock) as node:
        yield node


async def invoke(
    node: RunningNode, held: str | None, key: str = "NOW", args: str = "", sender: str = PEER, *, verified: bool = True
) -> Reply:
    """An invoke as the inbox asks for it."""
    intent = Intent(
        surface="inbox",
        at=node.clock.now(),
        object_key=key,
        arguments=args,
        phrasing=web.JsonPhrasing(),
        credential=Signed(sender, verified),
        token=held,
        named=True,
    )
    return await node.node.govern(intent)


def said(reply: Reply) -> tuple[str | None, int]:
    return reply.outcome.code, reply.outcome.status


async def bound(node: RunningNode, **terms: Any) -> dict[str, Any]:
    return await mint(node, **{"aud": PEER, **terms})


# --- inside a signed message (OIP 1.2 §8.4) -----------------------------------------------------------------------


async def test_a_verified_sender_runs_what_its_capability_covers(node: RunningNode) -> None:
    told = await bound(node, actor=PEER, uses=2)
    reply = await invoke(node, told["share_token"])
    assert reply.outcome.ok
    assert reply.receipt is not None
    (charge,) = reply.receipt.written["charges"]
    assert (charge["capability"], charge["minted_for"]) == (told["fingerprint"], PEER)
    assert charge["audience"] == PEER
    assert (await record(node, told["fingerprint"]))["uses_consumed"] == 1


async def test_each_gate_refuses_with_its_reason(node: RunningNode) -> None:
    told = await bound(node)
    held = told["share_token"]
    assert said(await invoke(node, None)) == ("capability_required", 401)
    assert said(await invoke(node, held[:-1] + "!")) == ("capability_invalid", 401)
    assert said(await invoke(node, await token(node))) == ("audience_binding_required", 403)
    assert said(await invoke(node, held, sender="mallory@peer.example")) == ("audience_mismatch", 403)
    assert said(await invoke(node, held, verified=False)) == ("audience_mismatch", 403)
    assert said(await invoke(node, held, key="UPPER")) == ("scope_mismatch", 403)
    act = await bound(node, scope="act", key="", uses=9)
    assert said(await invoke(node, act["share_token"], key="NO_SUCH")) == ("unknown_object", 404)
    assert said(await invoke(node, act["share_token"], key="")) == ("unknown_object", 404)
    await as_owner(node, revoke=told["fingerprint"])
    assert said(await invoke(node, held)) == ("revoked", 401)


async def test_a_domain_as_audience_takes_every_agent_of_it_and_none_below(node: RunningNode) -> None:
    held = (await bound(node, aud="peer.example"))["share_token"]
    assert (await invoke(node, held, sender="bob@peer.example")).outcome.ok
    assert said(await invoke(node, held, sender="bob@sub.peer.example")) == ("audience_mismatch", 403)


ALTERED: list[tuple[dict[str, Any], str]] = [
    ({"nonce": "A" * 12}, "capability_unrecorded"),
    ({"scope": "act"}, "capability_unrecorded"),
    ({"audience": None}, "audience_binding_required"),
    ({"audience": "mallory@peer.example", "revoked": True}, "audience_mismatch"),
    ({"revoked": True, "owner_gate": True}, "revoked"),
    ({"expires_at": 0, "contract_hash": "0" * 64}, "expired"),
    ({"owner_gate": True, "contract_hash": "0" * 64}, "owner_gate_required"),
    ({"max_uses": 1, "uses_consumed": 1, "max_body_bytes": 2}, "payload_ceiling:3>2"),
    ({"max_uses": 3, "uses_consumed": 1, "uses_reserved": 2}, "token_exhausted"),
]


@pytest.mark.case("oip:W21")
async def test_the_earlier_gate_speaks(node: RunningNode) -> None:
    """W21: a record that does not say what the token says is none."""
    told = await bound(node)
    row = await record(node, told["fingerprint"])
    for changes, reason in ALTERED:
        await alter(node, told["fingerprint"], **{**row, **changes})
        assert (await invoke(node, told["share_token"], args="abc")).outcome.code == reason


async def test_a_token_past_its_time_is_invalid(node: RunningNode, clock: FrozenClock) -> None:
    told = await bound(node, ttl=60)
    clock.advance(61)
    assert said(await invoke(node, told["share_token"])) == ("capability_invalid", 401)


async def test_what_the_node_does_not_list_no_token_opens(node: RunningNode) -> None:
    held = (await bound(node, scope="act", key="", uses=9))["share_token"]
    for key in ("CAPABILITY_MINT", "CAPABILITY_REVOKE", "CAPABILITY_EXPLAIN", "CONFIRM"):
        assert said(await invoke(node, held, key=key)) == ("scope_mismatch", 403)


async def test_the_gates_come_before_the_arguments(node: RunningNode) -> None:
    told = await bound(node, key="SUM", uses=2)
    assert said(await invoke(node, None, key="SUM", args="{}")) == ("capability_required", 401)
    assert said(await invoke(node, told["share_token"], key="SUM", args='{"one":1}')) == ("bad_arguments", 400)
    assert (await record(node, told["fingerprint"]))["uses_consumed"] == 0
    assert (await invoke(node, told["share_token"], key="SUM", args='{"one":1,"two":2}')).outcome.value == "3"


async def test_a_refused_use_is_an_entry_that_names_the_object(node: RunningNode) -> None:
    told = await bound(node)
    reply = await invoke(node, told["share_token"], key="UPPER")
    assert reply.outcome.extra["fingerprint"] == told["fingerprint"]
    entry = (await door.entries(node))[-1]
    assert (entry["object"], entry["code"], entry["actor"]) == ("UPPER", "scope_mismatch", PEER)


# --- at the door (OIP 1.2 §14.7, §16.5) ---------------------------------------------------------------------------


@pytest.mark.case("oip:F4", "oip:C27")
async def test_a_bound_token_is_useless_at_the_door(node: RunningNode) -> None:
    told = await bound(node)
    assert told["audience"] == PEER
    expected = vector("errors")["audience_bound"]
    got = await node.get(door.target(invoke="NOW", body="x", share=told["share_token"]))
    posted = await run(node, told["share_token"])
    for answer in (got, posted):
        body = answer.json()
        assert (answer.status, body["error"]) == (expected["status"], expected["body"]["error"])
        assert (body["fingerprint"], "note" in body) == (told["fingerprint"], True)


@pytest.mark.case("oip:C11")
async def test_a_scoped_token_fires_only_its_object(node: RunningNode) -> None:
    told = await mint(node)
    expected = vector("errors")["scope_mismatch"]
    assert (await run(node, told["share_token"])).status == 200
    other = await run(node, told["share_token"], "UPPER")
    body = other.json()
    assert (other.status, body["error"]) == (expected["status"], "scope_mismatch")
    assert (body["note"], body["fingerprint"]) == (expected["body"]["note"], told["fingerprint"])


@pytest.mark.case("oip:W32")
async def test_a_read_token_is_live_and_opens_nothing_to_run(node: RunningNode) -> None:
    answer = await run(node, await token(node, scope="read", key=""))
    assert (answer.status, answer.json()["error"]) == (401, "scope_mismatch")


async def test_the_record_gates_refuse_as_in_the_vectors(node: RunningNode) -> None:
    errors = vector("errors")
    ceiling = await mint(node, max_body_bytes=8)
    assert (await run(node, ceiling["share_token"], body="8 bytes!")).status == 200
    wide = await run(node, ceiling["share_token"], body="123456ü8")
    assert (wide.status, wide.json()["error"]) == (413, errors["payload_ceiling"]["body"]["error"])
    pinned = await mint(node)
    await alter(node, pinned["fingerprint"], contract_hash="0" * 64)
    changed = await run(node, pinned["share_token"])
    own = pinned["contract_hash"]
    assert (changed.status, changed.json()["error"]) == (409, f"contract_changed:{'0' * 64}!={own}")
    once = await mint(node, uses=1)
    assert (await run(node, once["share_token"])).status == 200
    spent = await run(node, once["share_token"])
    assert (spent.status, spent.json()["error"]) == (429, errors["exhausted"]["body"]["error"])
    for told, answer in ((ceiling, wide), (pinned, changed), (once, spent)):
        assert answer.json()["fingerprint"] == told["fingerprint"]


async def test_high_risk_needs_a_high_ceiling(node: RunningNode) -> None:
    low, high = await mint(node, key="DANGER"), await mint(node, key="DANGER", risk_ceiling="high")
    answer = await run(node, low["share_token"], "DANGER")
    assert (answer.status, answer.json()["error"]) == (403, "risk_ceiling:low<row:high")
    assert (await run(node, high["share_token"], "DANGER")).json()["result"] == "done"


async def test_an_owner_gated_token_never_fires(node: RunningNode) -> None:
    answer = await run(node, await token(node, owner_gate=1))
    assert (answer.status, answer.json()["error"]) == (403, "owner_gate_required")
    assert "propose" in answer.json()["next_step"]


async def test_a_fixed_body_replaces_an_empty_one_and_refuses_others(node: RunningNode) -> None:
    held = await token(node, key="UPPER", body_fixed="fixed")
    assert (await run(node, held, "UPPER")).json()["result"] == "FIXED"
    same = (await run(node, held, "UPPER", "fixed")).json()
    assert same["invocation"]["input_preview"] == "fixed"
    other = await run(node, held, "UPPER", "another")
    assert (other.status, other.json()["error"]) == (403, "body_not_allowed:fixed_body_only")


async def test_a_fixed_body_serves_an_object_with_fields(node: RunningNode) -> None:
    held = await token(node, key="SUM", body_fixed='{"one":2,"two":3}')
    assert (await run(node, held, "SUM")).json()["result"] == "5"
    unfit = await as_owner(node, mint_share=1, scope="row", key="SUM", body_fixed="five")
    assert unfit.status == 400


async def test_a_run_that_breaks_still_costs_its_use(node: RunningNode) -> None:
    told = await mint(node, key="BROKEN", uses=1)
    answer = await run(node, told["share_token"], "BROKEN")
    body = answer.json()
    assert (answer.status, body["ok"], body["ran"], body["proof"]["ok"]) == (200, False, True, False)
    assert body["result"] == "ERR:object:runner_failed"
    assert (await run(node, told["share_token"], "BROKEN")).status == 429


async def test_unlimited_uses_are_counted_too(node: RunningNode) -> None:
    told = await mint(node)
    for _ in range(3):
        await run(node, told["share_token"])
    assert (await record(node, told["fingerprint"]))["uses_consumed"] == 3


async def test_ten_at_once_spend_three_uses_three_times(node: RunningNode) -> None:
    told = await mint(node, uses=3)
    answers = await asyncio.gather(*(run(node, told["share_token"], body=str(each)) for each in range(10)))
    assert sorted(answer.status for answer in answers) == [200] * 3 + [429] * 7
    assert (await record(node, told["fingerprint"]))["uses_consumed"] == 3


async def test_a_dry_run_passes_the_gates_and_costs_nothing(node: RunningNode) -> None:
    told = await mint(node, uses=1)
    shaped = (await run(node, told["share_token"], shape=True)).json()
    assert (shaped["kind"], shaped["ran"], shaped["proof"]["invocation_id"]) == ("shaped_dry_run", False, None)
    assert (await run(node, told["share_token"], "UPPER", shape=True)).status == 401
    assert (await record(node, told["fingerprint"]))["uses_consumed"] == 0


@pytest.mark.case("oip:W26")
async def test_what_is_refused_before_the_last_gate_costs_nothing(node: RunningNode) -> None:
    told = await mint(node, scope="act", key="", uses=2, max_body_bytes=2)
    held = told["share_token"]
    assert (await node.get(door.target(invoke="NWO", share=held))).status == 404
    assert (await run(node, held, "NWO")).status == 404
    assert (await run(node, held, body="too long")).status == 413
    key = {"authorization": f"Bearer {held}", "idempotency-key": "one"}
    for _ in range(2):
        assert (await node.post(door.DOOR, {"key": "NOW"}, key)).status == 200
    assert (await record(node, told["fingerprint"]))["uses_consumed"] == 1


async def test_a_refused_use_is_ledgered_under_the_fingerprint(node: RunningNode) -> None:
    told = await mint(node)
    await run(node, told["share_token"], "UPPER")
    entry = (await door.entries(node))[-1]
    fingerprint = told["fingerprint"]
    assert (entry["actor"], entry["object"], entry["code"]) == (f"cap:{fingerprint}", "UPPER", "scope_mismatch")
    assert (entry["ended"], entry["capability"]) == ("refused", fingerprint)


async def test_a_token_that_verifies_without_a_record_is_denied(node: RunningNode) -> None:
    told = await mint(node)
    await node.node.database.run(lambda unit: unit.change("delete from capabilities_capability"))
    answer = await run(node, told["share_token"])
    assert (answer.status, answer.json()["error"]) == (401, "capability_missing")


async def test_an_owner_who_holds_up_a_token_is_bound_by_it(node: RunningNode) -> None:
    told = await mint(node, uses=1)
    both = {"x-terminal-key": node.owner_key, "authorization": f"Bearer {told['share_token']}"}
    assert (await node.post(door.DOOR, {"key": "UPPER"}, both)).status == 401
    ran = (await node.post(door.DOOR, {"key": "NOW"}, both)).json()
    assert (ran["affordances"]["computed_for"], ran["invocation"]["actor"]) == ("row", "owner:alpha.test")
    assert (await record(node, told["fingerprint"]))["uses_consumed"] == 1


# --- the chain (OIP 1.2 §14.8) ------------------------------------------------------------------------------------


def link(fingerprint: str, parent: str | None, depth: int, **changes: Any) -> dict[str, Any]:
    blank = dict.fromkeys(CAPABILITIES.columns)
    base = {"fingerprint": fingerprint, "parent_fingerprint": parent, "delegation_depth": depth}
    return {**blank, **base, "revoked": False, "expires_at": 2**45, **changes}


CHAINS = {
    "live": [link("c", "b", 2), link("b", "a", 1), link("a", None, 0)],
    "capability_missing": [],
    "revoked": [link("c", None, 0, revoked=True)],
    "expired": [link("c", None, 0, expires_at=1)],
    "ancestor_revoked": [link("c", "b", 2), link("b", "a", 1), link("a", None, 0, revoked=True)],
    "ancestor_expired": [link("c", "b", 1), link("b", None, 0, expires_at=1)],
    "ancestor_missing": [link("c", "b", 2), link("b", "a", 1)],
    "unexpected_parent": [link("c", "b", 0), link("b", None, 0)],
    "delegation_depth_mismatch": [link("c", "b", 3), link("b", None, 1)],
    "delegation_cycle": [link("c", "b", 2), link("b", "c", 1)],
    "delegation_too_deep": [
        *(link(name, above, 6 - place) for place, (name, above) in enumerate(zip("cdefgh", "defghi", strict=True))),
        link("i", None, 0),
    ],
}


async def test_how_a_walk_ends(node: RunningNode) -> None:
    def look(unit: Unit, rows: list[dict[str, Any]]) -> str:
        unit._group._facts[CAPABILITIES] = {row["fingerprint"]: row for row in rows}
        return walk(unit, "c").reason

    for reason, rows in CHAINS.items():
        assert await node.node.database.run(look, rows) == reason


async def test_depth_without_a_parent_is_a_missing_ancestor(node: RunningNode) -> None:
    told = await mint(node)
    await alter(node, told["fingerprint"], delegation_depth=1)
    answer = await run(node, told["share_token"])
    assert (answer.status, answer.json()["error"]) == (401, "ancestor_missing")


@pytest.mark.case("oip:W31")
async def test_a_revoked_token_does_nothing_on_any_lane(node: RunningNode) -> None:
    told = await mint(node)
    held = told["share_token"]
    await as_owner(node, revoke=told["fingerprint"])
    assert (await run(node, held)).json()["error"] == "revoked"
    assert (await run(node, held, shape=True)).json()["error"] == "revoked"
    assert (await node.get(door.target(invoke="NOW", share=held))).json()["error"] == "revoked"
