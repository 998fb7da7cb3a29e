"""Who a domain says it is: what is believed of it, in which words it is refused, and how long it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from deedbox import Intent, Operation, Outcome, Output, OwnerKey, Receipt
from deedbox.canonical import sha256_hex
from deedbox.clock import utc_z
from deedbox.identity.keys import P256Pair
from tests.kernel.https_peer import Script, drip, hang_up, plain, redirect
from tests.wellknown.scene import BETA, Scene, a_scene, entry, listed

OLD, NEW = P256Pair.generate(), P256Pair.generate()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_scene(tmp_path) as scene:
        yield scene


async def test_an_agent_is_found_and_then_known(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD), domain="beta.example")
    assert scene.known() is None
    record = await scene.resolve()
    assert (record.id, record.key, record.inbox) == (BETA, OLD.public, "https://beta.example/oip/inbox")
    assert record.fresh
    assert scene.known() is record
    assert (await scene.resolve("Node@BETA.Example")) is record
    assert scene.fetches == 1
    assert scene.peer.requests[0].headers["accept"] == "application/json"


async def test_our_own_agents_need_no_network(scene: Scene) -> None:
    record = await scene.resolve("node@alpha.example")
    assert record.key == scene.node.kernel.agents.pair(record.id, scene.clock.now()).public
    assert await scene.failure("nobody@alpha.example") == ("agent_not_published", None)
    assert await scene.refresh("node@alpha.example") is None
    assert scene.fetches == 0


# --- reasons, in the order of §7.3 -----------------------------------------------------------------------------------


@pytest.mark.case("oip:W15")
@pytest.mark.parametrize(
    "agent", ["node", "node@beta", "node@127.0.0.1", "node@beta.example:8443", "node@beta.example/x", "node@beta.local"]
)
async def test_what_is_no_agent_id_is_never_asked_for(scene: Scene, agent: str) -> None:
    assert await scene.failure(agent) == ("bad_agent_id", None)
    assert scene.names.asked == []


@pytest.mark.case("fed:B13")
@pytest.mark.parametrize(
    ("status", "wait"), [("404 Not Found", None), ("410 Gone", None), ("503 Unavailable", 30), ("429 Slow Down", 30)]
)
async def test_a_key_that_is_gone_and_one_that_may_come_back_are_told_apart(
    scene: Scene, status: str, wait: int | None
) -> None:
    scene.answer(plain(b"", status=status))
    assert await scene.failure() == (f"well_known_http_{status[:3]}", wait)


@pytest.mark.case("fed:B13")
@pytest.mark.parametrize(
    ("script", "reason", "wait"),
    [
        (plain(b" " * 262_145), "well_known_too_large", None),
        (plain(b"{"), "well_known_unreachable:the text is not JSON", None),
        (plain(b'{"protocol":"a","protocol":"b"}'), "well_known_unreachable:an object names a member twice", None),
        (plain(b"{}", content_type="text/html"), "well_known_unreachable:the answer is not JSON", None),
        (redirect("http://beta.example/"), "well_known_unreachable:beta.example redirects to where we do not go", None),
        (hang_up(), "well_known_unreachable:beta.example could not be reached, or broke off", 30),
    ],
)
async def test_an_answer_that_is_no_document(scene: Scene, script: Script, reason: str, wait: int | None) -> None:
    scene.answer(script)
    assert await scene.failure() == (reason, wait)


@pytest.mark.case("oip:W16", "oip:W17")
async def test_what_a_document_may_not_say_is_refused(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD), domain="gamma.example")
    assert await scene.failure() == ("well_known_unreachable:the document speaks for another domain", None)
    scene.clock.advance(30)
    scene.publish(entry(BETA, OLD) | {"inbox": "https://gamma.example/oip/inbox"})
    assert await scene.failure() == ("agent_record_incomplete", None)


async def test_an_agent_the_document_does_not_name(scene: Scene) -> None:
    scene.publish("nonsense", entry("other@beta.example", OLD))  # type: ignore[arg-type]
    assert await scene.failure() == ("agent_not_published", None)


async def test_a_published_private_key_is_refused_with_an_alarm(scene: Scene) -> None:
    private = OLD.private_jwk()
    scene.publish(entry(BETA, NEW, keys=[{"kid": "old", "public_key_jwk": private}]))
    with capture_logs() as told:
        assert await scene.failure() == ("agent_record_incomplete", None)
    assert [(line["event"], line["log_level"]) for line in told] == [("peer_published_private_key", "error")]
    assert private["d"] not in str(told)


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.case("fed:B5", "oip:N12", "oip:W13")
async def test_an_announced_rotation_works_at_once(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD, keys=[listed(OLD)]))
    assert (await scene.resolve()).key == OLD.public
    ends = utc_z(scene.clock.now() + 3_600_000)
    scene.publish(entry(BETA, NEW, keys=[listed(NEW), listed(OLD, not_after=ends)]))
    record = await scene.refresh()
    assert record.key == NEW.public
    assert record.fresh
    assert OLD.public in record.valid_keys(scene.clock.now()).values()
    assert scene.known() == record
    assert scene.fetches == 2
    assert [said["how"] for said in await scene.entries()] == ["first_seen", "announced"]


@pytest.mark.case("fed:B5")
async def test_many_who_meet_a_new_key_at_once_share_one_fetch(scene: Scene) -> None:
    other = "mail@beta.example"
    scene.publish(entry(BETA, OLD), entry(other, OLD))
    await asyncio.gather(scene.resolve(), scene.resolve(other))
    scene.publish(entry(BETA, NEW, keys=[listed(OLD)]), entry(other, NEW, keys=[listed(OLD)]))
    records = await asyncio.gather(*(scene.refresh(agent) for agent in (BETA, other) * 50))
    assert {record.key for record in records} == {NEW.public}
    assert scene.fetches == 2
    assert (await scene.refresh(other)).key == NEW.public  # who comes a moment later is given what was found
    assert scene.fetches == 2


@pytest.mark.case("fed:B6")
async def test_forged_signatures_cause_one_fetch_in_thirty_seconds(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    await scene.resolve()
    for _ in range(30):
        await asyncio.gather(*(scene.refresh() for _ in range(20)))
        scene.clock.advance(1)
    assert scene.fetches == 2
    await scene.refresh()
    assert scene.fetches == 3


async def test_a_refresh_that_fails_leaves_the_good_document(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    record = await scene.resolve()
    scene.clock.advance(1)
    scene.answer(plain(b"", status="404 Not Found"))
    assert await scene.refresh() is None
    assert scene.known() is record
    assert (await scene.refresh()) is None
    assert scene.fetches == 2


# --- pins ------------------------------------------------------------------------------------------------------------


@pytest.mark.case("oip:W14")
async def test_the_first_key_seen_goes_into_the_ledger_once(tmp_path: Path, database_url: str) -> None:
    for _ in range(2):
        async with a_scene(tmp_path, database=database_url) as scene:
            scene.publish(entry(BETA, OLD))
            await scene.resolve()
            scene.clock.advance(400)
            await scene.resolve()
            said = await scene.entries()
    key = {"agent": BETA, "thumbprint": OLD.public.thumbprint, "jwk": OLD.public.jwk}
    assert said == [{**key, "how": "first_seen"}]


async def test_a_document_fetched_in_the_same_instant_takes_the_place_of_the_one_before(scene: Scene) -> None:
    """Both live as long as each other, too: a minute is the least."""
    shortest = "cache-control: max-age=1"
    scene.publish(entry(BETA, OLD), headers=(shortest,))
    await scene.resolve()
    scene.publish(entry(BETA, NEW), headers=(shortest,))
    await scene.refresh()
    assert scene.known() is None


@pytest.mark.case("oip:W14")
async def test_a_key_changed_unannounced_discloses_until_the_owner_confirms_it(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    await scene.resolve()
    scene.publish(entry(BETA, NEW))
    with capture_logs() as told:
        changed = await scene.refresh()
        assert (changed.key, changed.fresh, changed.doubt) == (NEW.public, False, "key_changed")
        assert not (await scene.resolve()).fresh
        assert scene.known() is None
    assert [line["event"] for line in told] == ["peer_key_changed"]
    assert [said["how"] for said in await scene.entries()] == ["first_seen", "unannounced"]

    await confirm(scene, OLD, "no_changed_key")
    await confirm(scene, NEW, None)
    assert (await scene.resolve()).fresh
    assert scene.known().key == NEW.public
    assert (await scene.entries())[-1] | {"jwk": 0} == {
        "agent": BETA,
        "how": "confirmed",
        "thumbprint": NEW.public.thumbprint,
        "before": OLD.public.thumbprint,
        "jwk": 0,
    }


async def confirm(scene: Scene, pair: P256Pair, refused: str | None) -> None:
    """The owner's word, down the road."""
    given = {"agent": BETA.upper(), "thumbprint": pair.public.thumbprint}
    intent = Intent("test", scene.clock.now(), "PEER_KEY_CONFIRM", given, Plain(), credential=OwnerKey(scene.owner_key))
    outcome = (await scene.node.govern(intent)).outcome
    assert outcome.code == refused
    assert outcome.ok == (refused is None)


class Plain:
    """Answers with nothing but the outcome."""

    def output(self, operation: Operation, outcome: Outcome) -> Output:
        return Output(b"", sha256_hex(b""))

    def answer(self, operation: Operation, output: Output, receipt: Receipt | None) -> bytes:
        return b""


async def test_only_the_owner_confirms_a_key(scene: Scene) -> None:
    given = {"agent": BETA, "thumbprint": NEW.public.thumbprint}
    reply = await scene.node.govern(Intent("test", scene.clock.now(), "PEER_KEY_CONFIRM", given, Plain()))
    found = scene.node.catalog.get("PEER_KEY_CONFIRM")
    assert (reply.outcome.code, reply.outcome.status) == ("not_allowed", 403)
    assert found is not None
    assert not found.listed  # a token opens only what is listed, however wide its scope


async def test_doctor_is_told_of_keys_that_wait(scene: Scene) -> None:
    [check] = [check for _, check in scene.node.host.contributions("deedbox_checks")]
    assert await check.look(scene.node) is None
    scene.publish(entry(BETA, OLD))
    await scene.resolve()
    scene.publish(entry(BETA, NEW))
    await scene.refresh()
    assert BETA in (await check.look(scene.node) or "")


# --- keeping ---------------------------------------------------------------------------------------------------------


@pytest.mark.case("fed:F9")
@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ((), 270, 330),
        (("Cache-Control: max-age=1000",), 900, 1100),
        (("Cache-Control: max-age=5",), 60, 60),
        (("Cache-Control: no-store",), 60, 60),
        (("Cache-Control: max-age=86400",), 3600, 3600),
    ],
)
async def test_a_document_is_kept_as_long_as_it_says_within_limits(
    scene: Scene, headers: tuple[str, ...], least: int, most: int
) -> None:
    scene.publish(entry(BETA, OLD), headers=headers)
    await scene.resolve()
    held = scene.directory._held["beta.example"]
    life = held.until - scene.clock.now()
    assert least * 1000 <= life <= most * 1000
    scene.clock.advance(life / 1000)
    assert scene.known() is None
    await scene.resolve()
    assert scene.fetches == 2


async def test_lives_are_jittered(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        lives = {scene.directory._life(1000) for _ in range(200)}
    assert len(lives) > 50
    assert min(lives) >= 900
    assert max(lives) <= 1100


async def test_the_last_fifth_of_a_life_fetches_in_the_background(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    await scene.resolve()
    scene.clock.advance(210)
    assert scene.known()
    assert not scene.directory._flights
    scene.clock.advance(56)
    for _ in range(10):
        assert scene.known()
    await scene.settle()
    assert scene.fetches == 2
    scene.clock.advance(200)
    assert scene.known()
    assert scene.fetches == 2


async def test_a_background_fetch_that_fails_costs_nothing(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    record = await scene.resolve()
    scene.answer(plain(b"", status="500 Oops"))
    scene.clock.advance(268)
    assert scene.known() is record
    await scene.settle()
    assert scene.known() is record
    await scene.settle()
    assert scene.fetches == 2


async def test_an_unchanged_document_is_not_sent_again(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD), headers=('ETag: "one"',))
    await scene.resolve()
    scene.answer(plain(b"", 'ETag: "one"', status="304 Not Modified"))
    scene.clock.advance(400)
    assert (await scene.resolve()).key == OLD.public
    assert scene.peer.requests[-1].headers["if-none-match"] == '"one"'
    scene.clock.advance(400)
    assert (await scene.resolve()).fresh
    assert scene.fetches == 3


@pytest.mark.case("fed:F9")
async def test_a_failure_is_remembered_for_thirty_seconds(scene: Scene) -> None:
    scene.answer(plain(b"", status="503 Unavailable"))
    failures = await asyncio.gather(*(scene.failure() for _ in range(20)))
    assert set(failures) == {("well_known_http_503", 30)}
    scene.clock.advance(29)
    await scene.failure("mail@beta.example")
    assert scene.fetches == 1
    scene.clock.advance(1)
    scene.publish(entry(BETA, OLD))
    assert (await scene.resolve()).fresh


@pytest.mark.case("oip:W54")
async def test_a_new_agent_is_found_within_thirty_seconds(scene: Scene) -> None:
    newcomer = "new@beta.example"
    scene.publish(entry(BETA, OLD))
    await scene.resolve()
    assert await scene.failure(newcomer) == ("agent_not_published", None)
    scene.publish(entry(BETA, OLD), entry(newcomer, NEW))
    assert await scene.failure(newcomer) == ("agent_not_published", None)
    scene.clock.advance(30)
    assert (await scene.resolve(newcomer)).key == NEW.public
    assert scene.fetches == 2


@pytest.mark.case("oip:W54")
async def test_asking_for_agents_that_do_not_exist_is_no_way_to_make_us_fetch(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    await scene.resolve()
    scene.clock.advance(31)
    scene.answer(plain(b"", status="500 Oops"))
    for number in range(10):
        assert await scene.failure(f"a{number}@beta.example") == ("agent_not_published", None)
    assert scene.fetches == 2
    assert scene.known()


@pytest.mark.case("fed:F9")
async def test_an_old_answer_serves_disclosure_for_two_days_while_the_peer_is_down(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    await scene.resolve()
    scene.answer(plain(b"", status="502 Bad Gateway"))
    scene.clock.advance(400)
    stale = await scene.resolve()
    assert (stale.key, stale.fresh, stale.doubt) == (OLD.public, False, "stale_document")
    assert scene.known() == stale
    assert scene.fetches == 2
    scene.clock.advance(30)
    assert scene.known() is None
    assert not (await scene.resolve()).fresh
    scene.clock.advance(47 * 3600)
    assert not (await scene.resolve()).fresh
    scene.clock.advance(3600)
    assert await scene.failure() == ("well_known_http_502", 30)
    scene.clock.advance(30)
    scene.publish(entry(BETA, OLD))
    assert (await scene.resolve()).fresh


@pytest.mark.case("fed:F9")
async def test_an_old_answer_does_not_outlive_a_document_that_is_gone(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    await scene.resolve()
    scene.clock.advance(3600)
    scene.answer(plain(b"", status="404 Not Found"))
    assert await scene.failure() == ("well_known_http_404", None)
    scene.clock.advance(31)
    scene.answer(plain(b"", status="503 Unavailable"))
    assert await scene.failure() == ("well_known_http_503", 30)


async def test_one_fetch_a_domain_at_a_time(scene: Scene) -> None:
    agents = [f"a{number}@beta.example" for number in range(40)]
    scene.publish(*(entry(agent, OLD) for agent in agents))
    records = await asyncio.gather(*(scene.resolve(agent) for agent in agents))
    assert [record.id for record in records] == agents
    assert scene.fetches == 1


async def test_a_fetch_goes_on_when_whoever_asked_goes_away(scene: Scene) -> None:
    scene.publish(entry(BETA, OLD))
    asking = asyncio.create_task(scene.resolve())
    await scene.asked()
    asking.cancel()
    await scene.settle()
    assert (await scene.resolve()).fresh
    assert scene.fetches == 1


async def test_stopping_ends_a_fetch_that_is_under_way(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.answer(drip(0.05))
        asking = asyncio.create_task(scene.resolve())
        await scene.asked()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_what_was_fetched_is_shared_and_survives(tmp_path: Path, database_url: str) -> None:
    async with a_scene(tmp_path, database=database_url) as scene:
        scene.publish(entry(BETA, OLD))
        record = await scene.resolve()
    async with a_scene(tmp_path, database=database_url) as again:
        assert await again.resolve() == record
        assert again.fetches == 0


async def test_a_failure_is_shared_too(tmp_path: Path, database_url: str) -> None:
    async with a_scene(tmp_path, database=database_url) as scene:
        scene.answer(plain(b"", status="410 Gone"))
        await scene.failure()
    async with a_scene(tmp_path, database=database_url) as again:
        assert await again.failure() == ("well_known_http_410", None)
        assert again.fetches == 0


async def test_only_so_many_new_domains_are_asked_in_a_minute(tmp_path: Path) -> None:
    async with a_scene(tmp_path, new_domains="1/min") as scene:
        scene.publish(entry(BETA, OLD))
        await scene.resolve()
        reason = "well_known_unreachable:too many domains are new to this node"
        assert await scene.failure("node@gamma.example") == (reason, 30)
        assert scene.fetches == 1
        scene.clock.advance(60)
        assert await scene.failure("node@gamma.example") == ("agent_not_published", None)


async def test_only_so_many_keys_of_a_domain_are_noted_in_a_minute(scene: Scene) -> None:
    agents = [f"a{number}@beta.example" for number in range(61)]
    scene.publish(*(entry(agent, OLD) for agent in agents))
    for agent in agents[:60]:
        await scene.resolve(agent)
    assert await scene.failure(agents[60]) == ("well_known_unreachable:too many new keys", 30)
    assert len(await scene.entries()) == 60
