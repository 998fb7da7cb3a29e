"""Verdicts do not depend on who is asked first: combining them is associative, commutative and stable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deedbox import Allow, Deny, Hold
from deedbox.govern.authorise import SILENCE, combine

NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"])


@st.composite
def verdicts(draw: st.DrawFn) -> list[Any]:
    """What several policies say, each under a name of its own, some of them nothing."""
    said = []
    for name in draw(st.lists(NAMES, unique=True, max_size=6)):
        kind = draw(st.sampled_from(["silent", "allow", "hold", "deny"]))
        word = draw(st.sampled_from(["one", "two"]))
        made = {"allow": Allow(policy=name), "hold": Hold(word, policy=name), "deny": Deny(word, policy=name)}
        said.append(made.get(kind))
    return said


@given(verdicts(), st.randoms(use_true_random=False))
def test_the_order_of_policies_changes_nothing_not_even_the_words(said: list[Any], random: Any) -> None:
    shuffled = [*said]
    random.shuffle(shuffled)
    assert combine(shuffled) == combine(said)


def spoken(said: Sequence[Any]) -> Any:
    """What some of the policies come to, silence being nothing said."""
    found = combine(said)
    return None if found is SILENCE else found


@given(verdicts(), st.integers(0, 6), st.integers(0, 6))
def test_it_does_not_matter_which_are_combined_first(said: list[Any], one: int, other: int) -> None:
    first, second = sorted((one, other))
    parts = said[:first], said[first:second], said[second:]
    assert combine([spoken(part) for part in parts]) == combine(said)


@given(verdicts())
def test_the_strongest_that_was_said_wins(said: list[Any]) -> None:
    found = combine(said)
    heard = [verdict for verdict in said if verdict is not None]
    if not heard:
        assert found is SILENCE
        return
    assert found in heard
    assert all(verdict.weight <= found.weight for verdict in heard)
    assert all(verdict.policy >= found.policy for verdict in heard if verdict.weight == found.weight)


@given(verdicts())
def test_another_opinion_never_makes_an_answer_weaker(said: list[Any]) -> None:
    for place in range(len(said)):
        fewer = [*said[:place], *said[place + 1 :]]
        if spoken(fewer) is not None:
            assert combine(said).weight >= combine(fewer).weight
