"""What this node publishes of itself: the right words, the same bytes for all, and nothing of what is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from deedbox import Directory, Document, Facet, Plugin, Refusal, hookimpl
from deedbox.clock import utc_z
from deedbox.identity import agents
from deedbox.storage.unit import Unit
from deedbox.testing import FrozenClock, RunningNode, a_node
from deedbox_wellknown.oip import describe
from deedbox_wellknown.records import read_document, read_record

URL = "/.well-known/oip.json"
Vectors = Callable[[str], Any]


class Inbox(Plugin):
    """Stands for the facet of that name: the document asks only whether it is there."""

    facet = Facet(name="inbox", summary="takes envelopes")


class Dispatch(Plugin):
    facet = Facet(name="dispatch", summary="a door")


class Card(Plugin):
    """Contributes documents of its own."""

    facet = Facet(name="card", summary="a card")

    def __init__(self, kernel: Any, settings: Any) -> None:
        super().__init__(kernel, settings)
        self.rendered = 0
        self.missing = False

    @hookimpl
    def deedbox_documents(self) -> Iterable[Document]:
        yield Document("cards/mine.txt", "text/plain; charset=utf-8", self.render, max_age=60)

    async def render(self, node: Any) -> bytes:
        self.rendered += 1
        await asyncio.sleep(0)
        if self.missing:
            raise Refusal("no_card", 503, "later")
        return b"card %d" % self.rendered


PLUGINS: dict[str, type[Plugin]] = {"inbox": Inbox, "dispatch": Dispatch, "card": Card}
FACETS: dict[str, dict[str, Any]] = {"wellknown": {}, "inbox": {}, "dispatch": {}, "card": {}}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with a_node(tmp_path, "alpha.example", clock=FrozenClock(), facets=FACETS, plugins=PLUGINS) as running:
        yield running


def card(running: RunningNode) -> Any:
    return next(each for each in running.node.host.plugins if isinstance(each, Card))


async def test_the_document_says_who_lives_here(running: RunningNode, vectors: Vectors) -> None:
    answer = await running.get(URL)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    told = answer.json()
    example = vectors("wellknown.json")
    assert set(example) <= set(told)
    assert set(example["agents"][0]) <= set(told["agents"][0])
    assert told["domain"] == "alpha.example"
    urls = ("ledger", "spec", "federation_proof")
    assert [told[name] for name in urls] == [example[name].replace("home.", "alpha.") for name in urls]
    assert (told["protocol"], told["transport"], told["facets"]) == ("oip-message/1", "https", list(FACETS))
    [agent] = told["agents"]
    public = running.kernel.agents.pair("node@alpha.example", running.clock.now()).public
    assert agent["public_key_jwk"] == public.jwk
    assert (agent["id"], agent["inbox"]) == ("node@alpha.example", "https://alpha.example/oip/inbox")
    began = utc_z(running.clock.now())
    key = {"kid": public.thumbprint, "public_key_jwk": public.jwk, "not_before": began, "not_after": None}
    assert agent["keys"] == [key]


async def test_others_can_read_it(running: RunningNode) -> None:
    entries = read_document((await running.get(URL)).body, "alpha.example")
    record = read_record(
        entries["node@alpha.example"], "node@alpha.example", "alpha.example", running.clock.now(), development=False
    )
    assert record.valid_keys(running.clock.now()) == {record.key.thumbprint: record.key}


@pytest.mark.case("fed:F8")
async def test_limits_are_published(tmp_path: Path) -> None:
    async with a_node(tmp_path, facets=FACETS, limits={"inbox": {"bytes": 65_536}}, plugins=PLUGINS) as running:
        told = (await running.get(URL)).json()
    assert (told["max_request_bytes"], told["max_envelope_ttl_seconds"]) == (65_536, 900)


async def test_several_agents_have_a_key_each(tmp_path: Path) -> None:
    async with a_node(tmp_path, node={"agents": ["node", "mail"]}) as running:
        told = (await running.get(URL)).json()["agents"]
    assert [agent["id"] for agent in told] == ["node@alpha.test", "mail@alpha.test"]
    assert told[0]["public_key_jwk"] != told[1]["public_key_jwk"]


async def test_what_is_not_subscribed_is_not_published(tmp_path: Path) -> None:
    async with a_node(tmp_path, "alpha.example") as running:
        told = (await running.get(URL)).json()
        card = await running.get("/.well-known/cards/mine.txt")
    assert told.keys().isdisjoint({"ledger", "spec", "federation_proof"})
    assert told["agents"][0].keys().isdisjoint({"inbox", "invokes"})
    assert told["facets"] == ["wellknown"]
    assert card.status == 404


async def test_without_a_key_there_is_no_document(running: RunningNode, tmp_path: Path) -> None:
    def let_keys_end(unit: Unit) -> None:
        unit.change("update identity_key set not_after = :now where alg = 'ES256'", now=unit.now)

    await running.kernel.database.run(let_keys_end)
    reread = await running.kernel.database.run(
        agents.ensure, running.domain, ("node",), running.kernel.settings.node.keys, lambda size: bytes(size)
    )
    object.__setattr__(running.kernel, "agents", reread)
    answer = await running.get(URL)
    assert (answer.status, answer.json()["error"]) == (503, "home_signing_key_missing")
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.case("oip:W13")
async def test_a_new_key_is_published_at_once_beside_the_old(running: RunningNode) -> None:
    old = (await running.get(URL)).json()["agents"][0]["public_key_jwk"]
    kernel, clock = running.kernel, running.clock
    assert isinstance(clock, FrozenClock)
    clock.advance(10)
    folder, day = kernel.settings.node.keys, 86_400_000
    await kernel.database.run(agents.rotate, "node@alpha.example", folder, kernel.ids.secret, day)
    reread = await kernel.database.run(agents.ensure, running.domain, ("node",), folder, kernel.ids.secret)
    object.__setattr__(kernel, "agents", reread)
    agent = (await running.get(URL)).json()["agents"][0]
    assert agent["public_key_jwk"] != old
    assert [key["public_key_jwk"] for key in agent["keys"]] == [agent["public_key_jwk"], old]
    assert [key["not_after"] for key in agent["keys"]] == [None, utc_z(clock.now() + day)]
    clock.advance(day / 1000)
    assert len((await running.get(URL)).json()["agents"][0]["keys"]) == 1


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def test_it_may_be_kept_and_asked_for_again(running: RunningNode) -> None:
    first = await running.get(URL)
    assert first.headers["cache-control"] == "public, max-age=300"
    assert first.headers["access-control-allow-origin"] == "*"
    etag = first.headers["etag"]
    for asked in (etag, f'"other", W/{etag}', "*"):
        again = await running.get(URL, if_none_match=asked)
        assert (again.status, again.body) == (304, b"")
        assert (again.headers["etag"], again.headers["cache-control"]) == (etag, "public, max-age=300")
        assert "content-type" not in again.headers
    assert (await running.get(URL, if_none_match='"other"')).body == first.body


async def test_head_says_what_get_would(running: RunningNode) -> None:
    got, head = await running.get(URL), await running.request("HEAD", URL)
    assert (head.status, head.body) == (200, b"")
    for name in ("content-length", "content-type", "etag", "cache-control"):
        assert head.headers[name] == got.headers[name]


async def test_browsers_may_ask_first(running: RunningNode) -> None:
    answer = await running.request("OPTIONS", URL)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS"
    assert answer.headers["access-control-allow-headers"] == "*"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_put_here(running: RunningNode, method: str) -> None:
    answer = await running.request(method, URL, b"{}")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert answer.json()["error"] == "method_not_allowed"


@pytest.mark.parametrize(
    "target", ["/.well-known/none.json", "/.well-known/", "/.well-known", "/.well-known/oip.json/x"]
)
async def test_what_nobody_contributes_is_not_found(running: RunningNode, target: str) -> None:
    assert (await running.get(target)).status == 404


async def test_an_address_that_asks_too_often_waits(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with a_node(tmp_path, "alpha.example", clock=clock, limits={"shield": {"address": "3/min"}}) as running:
        statuses = [(await running.get(URL)).status for _ in range(4)]
        refused = await running.get(URL)
        clock.advance(int(refused.headers["retry-after"]))
        after = await running.get(URL)
    assert statuses == [200, 200, 200, 429]
    assert after.status == 200


async def test_a_facets_document_is_rendered_once_for_its_life(running: RunningNode) -> None:
    target = "/.well-known/cards/mine.txt"
    answers = await asyncio.gather(*(running.get(target) for _ in range(5)))
    assert {answer.body for answer in answers} == {b"card 1"}
    assert answers[0].headers["content-type"] == "text/plain; charset=utf-8"
    assert answers[0].headers["cache-control"] == "public, max-age=60"
    assert isinstance(running.clock, FrozenClock)
    running.clock.advance(60)
    assert (await running.get(target)).body == b"card 2"


async def test_a_refusal_to_render_is_not_kept(running: RunningNode) -> None:
    card(running).missing = True
    assert (await running.get("/.well-known/cards/mine.txt")).json()["error"] == "no_card"
    card(running).missing = False
    assert (await running.get("/.well-known/cards/mine.txt")).status == 200


async def test_two_development_nodes_find_each_other(two_nodes: Callable[..., Any]) -> None:
    alpha, beta = await two_nodes(facets={"wellknown": {}, "inbox": {}}, plugins={"inbox": Inbox})
    record = await alpha.node.port(Directory).resolve("node@beta.test", alpha.clock.now())
    assert record.key.jwk == describe(beta.node)["agents"][0]["public_key_jwk"]
    assert record.inbox == "https://beta.test/oip/inbox"
    again = await alpha.node.port(Directory).refresh("node@beta.test", alpha.clock.now())
    assert again == record
