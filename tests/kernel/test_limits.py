"""Limits: rates that are exact to the millisecond, shields that forget, and a cap on refusals of strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbox import Anonymous, Effect, Node, Refusal, Unit
from deedbox.govern import limits
from deedbox.govern.limits import QUOTAS, Rate, RefusalEvents, Shield, spend_quota
from deedbox.ledger.sealing import seal
from deedbox.testing import FrozenClock
from tests.kernel.bare_node import a_bare_node
from tests.kernel.road_scene import Badge, an_object, ask, intent, toys, written

NOW = 1_767_323_045_000
RATES = st.builds(Rate, st.integers(1, 999_999), st.sampled_from([1_000, 60_000, 3_600_000]))
SMALL_RATES = st.builds(Rate, st.integers(1, 12), st.sampled_from([1_000, 60_000]))


class Spender:
    """Spends one rate, as a quota's row or a shield's mark does."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.mark = 0

    def spend(self, now: int) -> bool:
        fits, mark = self.rate.spend(self.mark, now)
        self.mark = mark if fits else self.mark
        return fits

    def wait(self, now: int) -> int:
        return self.rate.wait(self.rate.spend(self.mark, now)[1], now)


@given(SMALL_RATES, st.lists(st.integers(0, 20_000), max_size=60))
def test_never_more_than_a_burst_and_what_has_grown_back(rate: Rate, pauses: list[int]) -> None:
    spender, now, admitted = Spender(rate), NOW, []
    for pause in pauses:
        now += pause
        if spender.spend(now):
            admitted.append(now)
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            passed = admitted[last] - admitted[first]
            assert last - first + 1 <= rate.count + passed * rate.count // rate.span


@given(RATES)
def test_the_whole_burst_fits_at_once_and_no_more(rate: Rate) -> None:
    rate = Rate(min(rate.count, 300), rate.span)
    spender = Spender(rate)
    assert [spender.spend(NOW) for _ in range(rate.count + 1)] == [True] * rate.count + [False]


@given(SMALL_RATES, st.lists(st.integers(0, 5_000), max_size=40))
def test_the_wait_is_the_shortest_whole_number_of_seconds_that_helps(rate: Rate, pauses: list[int]) -> None:
    spender, now = Spender(rate), NOW
    for pause in pauses:
        now += pause
        if not spender.spend(now):
            wait = spender.wait(now)
            assert wait >= 1
            assert Spender.spend(copy(spender), now + 1000 * wait)
            assert wait == 1 or not Spender.spend(copy(spender), now + 1000 * (wait - 1))


def copy(spender: Spender) -> Spender:
    made = Spender(spender.rate)
    made.mark = spender.mark
    return made


@given(RATES, st.integers(0, 4_000_000_000_000))
def test_no_rate_is_rounded_and_every_mark_fits_a_column(rate: Rate, now: int) -> None:
    fits, mark = rate.spend(0, now)
    assert fits
    assert mark == now * rate.count + rate.span
    assert mark < 2**63


def test_an_even_flow_at_the_rate_itself_always_passes() -> None:
    spender = Spender(Rate(7, 60_000))
    for number in range(200):
        assert spender.spend(NOW + -(-number * 60_000 // 7))


# --- quotas ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def node(tmp_path: Path, database_url: str, clock: FrozenClock) -> AsyncIterator[Node]:
    plugin = toys(
        an_object("RUN"),
        an_object("SHOW", effect=Effect.DISCLOSURE),
        an_object("SHOW_PUBLIC", effect=Effect.DISCLOSURE, public=True),
    )
    async with a_bare_node(tmp_path, plugin, database=database_url, clock=clock) as made:
        yield made


async def test_a_quota_counts_across_units_that_come_at_once(node: Node, clock: FrozenClock) -> None:
    rate = Rate.of("5/min")

    def spend(unit: Unit) -> None:
        spend_quota(unit, "inbox/peer.test", rate, unit.now)

    ends = await asyncio.gather(*(node.database.run(spend) for _ in range(20)), return_exceptions=True)
    assert ends.count(None) == 5
    refusals = [end for end in ends if isinstance(end, Refusal)]
    assert {(no.code, no.status, no.retry_after) for no in refusals} == {("rate_limited", 429, 12)}
    clock.advance(12)
    await node.database.run(spend)
    with pytest.raises(Refusal):
        await node.database.run(spend)


async def test_a_unit_that_fails_has_spent_nothing(node: Node) -> None:
    rate = Rate.of("1/min")

    def fails(unit: Unit) -> None:
        spend_quota(unit, "k", rate, unit.now)
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await node.database.run(fails)
    assert await node.database.run(lambda unit: unit.fact(QUOTAS, "k")) is None


# --- shields ---------------------------------------------------------------------------------------------------------


def test_a_shield_says_no_before_anything_is_proven() -> None:
    shield = Shield("2/s")
    assert [shield.admits("a", NOW) for _ in range(3)] == [True, True, False]
    assert shield.admits("b", NOW)
    with pytest.raises(Refusal) as no:
        shield.check("a", NOW)
    assert (no.value.code, no.value.status, no.value.retry_after) == ("rate_limited", 429, 1)
    shield.check("a", NOW + 500)


def test_looking_at_a_shield_charges_nothing() -> None:
    shield = Shield("1/s")
    assert [shield.spent("a", NOW) for _ in range(5)] == [False] * 5
    assert shield.admits("a", NOW)
    assert shield.spent("a", NOW)


def test_a_shield_remembers_so_many_and_forgets_who_has_waited_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADDRESSES_REMEMBERED", 10)
    shield = Shield("1/min")
    for number in range(10):
        shield.admits(f"old {number}", NOW)
    for number in range(10):
        shield.admits(f"new {number}", NOW + 60_000)
    assert len(shield._marks) <= 10
    assert all(shield.spent(f"new {number}", NOW + 60_000) for number in range(10))
    for number in range(1_000):  # more at once than it can know: the oldest go
        shield.admits(f"flood {number}", NOW + 60_001)
    assert len(shield._marks) <= 10
    assert shield.spent("flood 999", NOW + 60_001)


async def test_the_shield_stands_before_the_proof(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    object.__setattr__(node, "shield", Shield("2/min"))
    proofs = []
    believer = node.authenticator(Badge)
    proves = believer.prepare

    async def counted(*given: Any) -> Any:
        proofs.append(1)
        return await proves(*given)

    monkeypatch.setattr(believer, "prepare", counted)
    replies = [await ask(node, "RUN", address="192.0.2.1") for _ in range(3)]
    assert [reply.outcome.code for reply in replies] == [None, None, "rate_limited"]
    assert len(proofs) == 2


# --- the cap on refusals of strangers (decision 32) ------------------------------------------------------------------


def test_thirty_an_address_and_six_hundred_in_all() -> None:
    events = RefusalEvents()
    assert sum(events.worth_writing("192.0.2.1", "unauthorized", NOW) for _ in range(50)) == 30
    others = sum(events.worth_writing(f"192.0.2.{n}", "no", NOW) for n in range(2, 60) for _ in range(30))
    assert others == 570
    assert events.take_counts() == {"unauthorized": 20, "no": 58 * 30 - 570}
    assert events.take_counts() == {}
    assert events.worth_writing("198.51.100.1", "no", NOW + 60_000)


@pytest.mark.parametrize(
    ("key", "credential", "code"),
    [
        ("RUN", Badge("mallory", good=False), "bad_badge"),
        ("SHOW", Anonymous(), "not_allowed"),
        ("NOWHERE", Anonymous(), "unknown_object"),
    ],
)
async def test_what_strangers_are_refused_is_written_up_to_the_cap_and_then_counted(
    node: Node, clock: FrozenClock, key: str, credential: Any, code: str
) -> None:
    replies = [await ask(node, key, credential=credential, address="192.0.2.1") for _ in range(40)]
    assert {reply.outcome.code for reply in replies} == {code}
    assert [line.kind for line in await written(node)] == ["refused"] * 30
    clock.advance(3)
    await node.database.run(seal, node)
    batch = next(line for line in await written(node) if line.where == "entry")
    assert (batch.kind, batch.said["count"], batch.said["dropped"]) == ("batch", 30, {code: 10})


async def test_what_strangers_are_shown_and_what_friends_are_refused_is_always_written(node: Node) -> None:
    for _ in range(40):
        await ask(node, "SHOW_PUBLIC", credential=Anonymous(), address="192.0.2.1")
        await ask(node, "NO_RUN", address="192.0.2.1")
    lines = await written(node)
    assert [(line.where, line.kind) for line in lines] == [("entry", "refused")] * 40 + [("event", "executed")] * 40


async def test_refusals_before_the_road_share_the_cap(node: Node) -> None:
    refusal = Refusal("malformed_envelope", 400)
    asking = intent(node, "", address="192.0.2.1", subject={"carrier": "https"})
    for _ in range(31):
        reply = await node.refuse(asking, refusal)
        assert (reply.refusal, reply.receipt) == (refusal, None)
    lines = await written(node)
    assert len(lines) == 30
    assert lines[0].said["carrier"] == "https"
