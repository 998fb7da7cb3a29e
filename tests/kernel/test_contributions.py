"""What a facet yields is checked when the node is assembled, and a double names both facets (architecture §2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from litestar import asgi

from deedbox import Effect, Facet, Inside, Object, Plugin, Refusal, Text, hookimpl
from deedbox.clock import SystemClock
from tests.kernel.bare_node import a_bare_node


def plugin(name: str, hook: str, values: Callable[[], Iterable[Any]]) -> type[Plugin]:
    """A plugin that yields something for one hook."""

    def declare(self: Plugin) -> Iterable[Any]:
        return values()

    declare.__name__ = hook
    members = {"facet": Facet(name=name, summary="A test."), hook: hookimpl(declare)}
    return type(name.title(), (Plugin,), members)


async def assembled(folder: Path, *classes: type[Plugin]) -> None:
    database = f"sqlite:///{folder / 'deedbox.db'}"
    async with a_bare_node(folder, *classes, database=database, clock=SystemClock()):
        pass


@asgi("/door", copy_scope=False)
async def door(scope: Any, receive: Any, send: Any) -> None: ...


@asgi("/door", copy_scope=False)
async def another_door(scope: Any, receive: Any, send: Any) -> None: ...


class Carrier:
    schemes = ("https",)

    async def deliver(self, node: Any, item: Any) -> None: ...


class Nameless:
    def judge(self, unit: Any, operation: Any) -> None: ...


class Judge(Nameless):
    name = "judge"


DOUBLES: list[tuple[str, Any, Any]] = [
    ("deedbox_routes", door, another_door),
    ("deedbox_transports", Carrier(), Carrier()),
    ("deedbox_policies", Judge(), Judge()),
]


@pytest.mark.parametrize(("hook", "one", "other"), DOUBLES, ids=[row[0] for row in DOUBLES])
async def test_a_double_names_both_facets(tmp_path: Path, hook: str, one: Any, other: Any) -> None:
    with pytest.raises(Refusal, match="comes from first and second") as refused:
        await assembled(tmp_path, plugin("first", hook, lambda: [one]), plugin("second", hook, lambda: [other]))
    assert refused.value.code == "duplicate_contribution"


@pytest.mark.parametrize(
    ("hook", "value"),
    [
        ("deedbox_policies", Nameless()),
        ("deedbox_transports", object()),
        ("deedbox_authenticators", Judge()),
        ("deedbox_services", "not a function"),
        ("deedbox_objects", Judge()),
    ],
)
async def test_a_value_of_the_wrong_shape_stops_the_start(tmp_path: Path, hook: str, value: Any) -> None:
    with pytest.raises(Refusal, match=f"first: {hook}") as refused:
        await assembled(tmp_path, plugin("first", hook, lambda: [value]))
    assert refused.value.code == "bad_contribution"


@pytest.mark.parametrize("key", ["NO SPACE", "", "DOT.TED", "K" * 65])
async def test_an_object_key_fits_a_token(tmp_path: Path, key: str) -> None:
    offered = Object(key, "A test.", Effect.DISCLOSURE, Text, Inside(lambda unit, given, operation: None))
    with pytest.raises(Refusal, match="a key is 1 to 64") as refused:
        await assembled(tmp_path, plugin("first", "deedbox_objects", lambda: [offered]))
    assert refused.value.code == "bad_contribution"
