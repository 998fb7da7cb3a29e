"""Facets: in order, by name, and gone without a trace when their table is taken from the settings (Done-when 4)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from deedbox import Facet, Plugin, Refusal, Section
from deedbox.facets import installed, plugin_class, subscribed
from deedbox.testing import a_node

FACETS = sorted(installed())


def named(name: str, *requires: str, settings: type[Section] = Section) -> type[Plugin]:
    class Named(Plugin):
        facet = Facet(name=name, summary=f"The facet {name}.", requires=requires, settings=settings)

    return Named


# --- which, and in which order ---------------------------------------------------------------------------------------


def order(classes: Mapping[str, type[Plugin]], *tables: str) -> list[str]:
    return [each.facet.name for each in subscribed({table: {} for table in tables}, classes)]


def test_a_facet_comes_after_what_it_requires() -> None:
    known = {"a": named("a", "b", "c"), "b": named("b", "c"), "c": named("c"), "d": named("d")}
    assert order(known, "a", "b", "c", "d") == ["c", "b", "a", "d"]
    assert order(known, "d", "c") == ["d", "c"]
    assert order(known) == []


@pytest.mark.parametrize(
    ("tables", "code", "said"),
    [
        (("a",), "facet_missing", "a requires b"),
        (("nowhere",), "unknown_facet", "no facet nowhere is installed"),
        (("one", "two"), "facet_cycle", "one → two → one"),
    ],
)
def test_what_cannot_be_subscribed_is_said(tables: tuple[str, ...], code: str, said: str) -> None:
    known = {"a": named("a", "b"), "b": named("b"), "one": named("one", "two"), "two": named("two", "one")}
    with pytest.raises(Refusal) as no:
        order(known, *tables)
    assert (no.value.code, no.value.detail) == (code, said)


def test_an_unknown_facet_is_told_what_is_installed() -> None:
    with pytest.raises(Refusal) as no:
        plugin_class("inbux", {})
    assert no.value.next_step == f"installed: {', '.join(FACETS)}"


@pytest.mark.parametrize("name", FACETS)
def test_an_entry_point_is_the_plugin_of_its_facet(name: str) -> None:
    found = plugin_class(name, {})
    assert (found.facet.name, found.facet.summary != "") == (name, True)
    assert all(sentence.endswith(".") for sentence in (*found.facet.obligations, *found.facet.non_obligations))


# --- settings and state of its own -----------------------------------------------------------------------------------


class Height(Section):
    metres: int = Field(1, ge=1)


async def test_a_facet_has_the_settings_of_its_table_checked(tmp_path: Path) -> None:
    plugins = {"tower": named("tower", settings=Height)}
    async with a_node(tmp_path, "alpha.example", facets={"tower": {"metres": 30}}, plugins=plugins) as made:
        (plugin,) = made.node.host.plugins
        assert plugin.settings.metres == 30
    for table, said in (({"meters": 1}, "did you mean metres?"), ({"metres": 0}, "facets.tower.metres")):
        with pytest.raises(Refusal, match="bad_settings") as no:
            async with a_node(tmp_path, "alpha.example", facets={"tower": table}, plugins=plugins):
                pass
        assert said in no.value.detail


async def test_two_nodes_of_a_process_share_no_plugin(tmp_path: Path) -> None:
    plugins = {"tower": named("tower")}
    async with (
        a_node(tmp_path / "a", "alpha.example", facets={"tower": {}}, plugins=plugins) as one,
        a_node(tmp_path / "b", "beta.example", facets={"tower": {}}, plugins=plugins) as other,
    ):
        assert one.node.host.plugins[0] is not other.node.host.plugins[0]
        assert one.node.host.plugins[0].kernel.domain == "alpha.example"


# --- taking one away -------------------------------------------------------------------------------------------------

LOOK = """
import asyncio, json, sys, tempfile
from pathlib import Path
from deedbox.app import routes
from deedbox.testing import a_node

async def main():
    with tempfile.TemporaryDirectory() as folder:
        facets = {name: {} for name in sys.argv[1].split(",") if name}
        async with a_node(Path(folder) / "node", "alpha.example", facets=facets) as made:
            node = made.node
            paths = sorted({path for route in routes(node) for path in route.paths})
            told = {name: (await made.get(f"/.well-known/{name}")).body.decode() for name in node.documents}
            for path in paths:
                told[path] = (await made.get(path)).body.decode()
            return {
                "paths": paths,
                "told": told,
                "served": {path: (await made.get(path)).status for path in sys.argv[2].split(",") if path},
                "contributions": {
                    "authenticators": sorted(str(kind) for kind in node.authenticators),
                    "documents": sorted(node.documents),
                    "objects": sorted(each.key for each in node.catalog),
                    "jobs": sorted(node.jobs),
                    "message_kinds": sorted(node.message_kinds),
                    "observers": sorted(each.name for each in node.observers),
                    "policies": sorted(each.name for each in node.policies),
                    "ports": sorted(str(protocol) for protocol in node.ports),
                    "transports": sorted(node.transports),
                },
                "tables": sorted(await node.database.read(lambda reader: [
                    row.name for row in reader.all("select name from sqlite_master where type = 'table'")
                ])),
                "modules": sorted(name for name in sys.modules if name.partition(".")[0].startswith("deedbox_")),
            }

print(json.dumps(asyncio.run(main())))
"""


@cache
def look(facets: str, paths: str = "") -> Any:
    """What a node with these facets imports, serves and publishes, in a process of its own."""
    command = [sys.executable, "-W", "error", "-c", LOOK, facets, paths]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def without(name: str) -> list[str]:
    """The other facets, but for those that cannot be without it."""
    gone = {name}
    while more := {each for each in FACETS if gone & set(plugin_class(each, {}).facet.requires)} - gone:
        gone |= more
    return [each for each in FACETS if each not in gone]


@pytest.mark.parametrize("name", FACETS)
def test_a_facet_whose_table_is_taken_away_is_not_imported_served_or_published(name: str) -> None:
    everything, kept = look(",".join(FACETS)), without(name)
    rest = look(",".join(kept), ",".join(everything["paths"]))
    package = installed()[name].value.partition(":")[0]
    assert [module for module in everything["modules"] if module.partition(".")[0] == package] != []
    assert [module for module in rest["modules"] if module.partition(".")[0] == package] == []
    gone = set(everything["paths"]) - set(rest["paths"])
    assert {path: rest["served"][path] for path in gone} == dict.fromkeys(gone, 404)
    assert [path for path in gone if any(names(text, path) for text in rest["told"].values())] == []
    assert set(chain(*map(facets_in, rest["told"].values()))) == set(kept)
    assert [table for table in rest["tables"] if table.startswith(f"{name}_")] == []
    for kind, found in rest["contributions"].items():
        assert set(found) <= set(everything["contributions"][kind])
        assert [each for each in found if package in each] == []


def names(text: str, path: str) -> bool:
    """Whether a published text points to a path."""
    return re.search(rf"{re.escape(path)}(?![\w-])", text) is not None


def facets_in(text: str) -> list[str]:
    """The facets that a published document lists."""
    try:
        said = json.loads(text)
    except ValueError:
        return []
    return list(said.get("facets", ())) if isinstance(said, dict) else []


def test_a_node_of_no_facets_is_a_node() -> None:
    bare = look("")
    assert bare["modules"] == []
    assert bare["paths"] == ["/health", "/health/live", "/health/ready", "/metrics", "/ready"]
    assert json.loads(bare["told"]["/health"])["facets"] == []
