"""Canonical JSON under random values, and proof that the fuzz would notice a guard that lets too much through."""

from __future__ import annotations

import json
import random
import struct
from contextlib import suppress
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from deedbox.canonical import Guard, admit, canonical, make_guard
from deedbox.refusals import Refusal

SAFE = 2**53 - 1
VALUES = 20_000
FLOATS = 100_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-SAFE, SAFE) | st.floats(-1e15, 1e15, allow_nan=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def random_float(rng: random.Random) -> float:
    choice = rng.randrange(4)
    if choice == 0:  # any bit pattern
        (number,) = struct.unpack(">d", rng.randbytes(8))
        return float(number)
    if choice == 1:  # near every border where printers disagree, whole numbers too
        return rng.choice((-1, 1)) * float(f"{rng.randrange(1, 10 ** rng.randrange(1, 17))}e{rng.randrange(-24, 22)}")
    if choice == 2:
        return rng.choice((-1, 1)) * rng.uniform(1, 10) * 10.0 ** rng.randrange(-9, 23)
    return float(rng.randrange(-1000, 1000))


def random_text(rng: random.Random) -> str:
    alphabet = rng.choice(("abcxyz_AZ09", 'a"\\/\b\t\n\x00\x1f\x7f', "aé\u2028\ufb33\ue000\U0001f600\U0010ffff"))
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(6)))


def random_value(rng: random.Random, depth: int = 0) -> Any:
    choice = rng.randrange(8 if depth < 3 else 6)
    if choice == 0:
        return rng.choice((None, True, False))
    if choice == 1:
        return rng.choice((rng.randrange(-100, 100), rng.randrange(-(2**53), 2**53 + 1), SAFE, -SAFE, SAFE + 1))
    if choice == 2:
        return random_float(rng)
    if choice <= 5:
        return random_text(rng)
    size = rng.randrange(5)
    if choice == 6:
        return [random_value(rng, depth + 1) for _ in range(size)]
    return {random_text(rng): random_value(rng, depth + 1) for _ in range(size)}


def disagreements(guard: Guard, candidates: list[Any]) -> tuple[int, int]:
    """How many values a guard lets take the fast path, and on how many of those the two printers differ."""
    passed = wrong = 0
    for value in candidates:
        if not guard(value):
            continue
        passed += 1
        try:
            wrong += orjson.dumps(value, option=orjson.OPT_SORT_KEYS) != rfc8785.dumps(value)
        except (rfc8785.CanonicalizationError, UnicodeEncodeError):
            wrong += 1
    return passed, wrong


@pytest.fixture(scope="module")
def candidates() -> list[Any]:
    rng = random.Random(8785)
    return [random_value(rng) for _ in range(VALUES)] + [random_float(rng) for _ in range(FLOATS)]


def test_where_the_guard_passes_the_printers_agree(candidates: list[Any]) -> None:
    passed, wrong = disagreements(make_guard(), candidates)
    assert passed > len(candidates) // 10
    assert wrong == 0


@pytest.mark.parametrize(
    "weakened", [{"least": 1e-6}, {"fractions_only": False}], ids=["smaller floats", "whole floats"]
)
def test_the_fuzz_notices_a_weaker_guard(candidates: list[Any], weakened: dict[str, Any]) -> None:
    _, wrong = disagreements(make_guard(**weakened), candidates)
    assert wrong > 0


@given(values)
def test_printing_twice_is_printing_once(value: Any) -> None:
    printed = canonical(value)
    assert canonical(admit(printed)) == printed
    assert printed == rfc8785.dumps(value)


@given(values, st.randoms(use_true_random=False))
def test_order_of_members_means_nothing(value: Any, rng: random.Random) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            names = list(item)
            rng.shuffle(names)
            return {name: shuffled(item[name]) for name in names}
        return [shuffled(inner) for inner in item] if isinstance(item, list) else item

    assert canonical(shuffled(value)) == canonical(value)


@given(values, st.booleans(), st.sampled_from([None, 2]), st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_every_spelling_of_a_value_is_admitted_as_it(
    value: Any, ascii_only: bool, indent: int | None, separators: tuple[str, str]
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    assert canonical(admit(text.encode())) == canonical(value)


@given(st.dictionaries(texts, values, min_size=1, max_size=4), st.data())
def test_any_member_written_twice_is_refused(members: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(members)))
    spelled = json.dumps(name, ensure_ascii=data.draw(st.booleans()))
    again = f"{{{spelled}:{json.dumps(data.draw(values))},{json.dumps(members)[1:]}"
    nested = data.draw(st.sampled_from(["%s", '{"outer": [%s, {"b": ":"}]}', "[%s]"])).replace("%s", again)
    with pytest.raises(Refusal, match="duplicate_member"):
        admit(nested.encode())


@given(st.binary(max_size=40) | st.text('{}[]",:\\ud8 01e-.ntf\n', max_size=40).map(str.encode))
def test_any_bytes_are_a_value_or_a_refusal(raw: bytes) -> None:
    with suppress(Refusal):
        printed = canonical(admit(raw))
        assert canonical(admit(printed)) == printed
