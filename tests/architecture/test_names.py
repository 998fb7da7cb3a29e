"""Names say what a thing is; words that fit anything are no names, and a checkout names no machine but its reader's."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.sources import sources, texts

ANYWHERE = {"manager", "handler", "helper", "helpers", "util", "utils", "common", "base", "core", "processor"}
AT_THE_END = {"service", "context", "data", "info"}
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|home|root)/|/tmp/\w")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def says_nothing(name: str) -> bool:
    parts = words(name)
    return bool(parts) and (not ANYWHERE.isdisjoint(parts) or parts[-1] in AT_THE_END)


def test_the_rule_itself() -> None:
    assert all(map(says_nothing, ("KeyManager", "http_utils", "BaseUnit", "Service", "RequestContext", "data")))
    assert not any(map(says_nothing, ("Database", "Baseline", "DataFolder", "Unit", "ContextualRefusal", "")))


def test_no_module_or_class_has_a_name_that_fits_anything() -> None:
    modules = {part for source in sources() for part in Path(source.name).with_suffix("").parts}
    classes = {node.name for source in sources() for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)}
    assert sorted(filter(says_nothing, modules | classes)) == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    here = Path(__file__).name
    found = {name: MACHINE_PATHS.findall(text) for name, text in texts().items() if Path(name).name != here}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_nothing_is_left_for_later() -> None:
    found = {source.name: UNFINISHED.findall(source.text) for source in sources()}
    assert {name: marks for name, marks in found.items() if marks} == {}
