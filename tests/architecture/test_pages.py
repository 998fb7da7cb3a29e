"""What the pages say can be done and found is so: their commands, settings, listings, paths and names."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from itertools import dropwhile
from typing import Any

import pytest
from click.testing import CliRunner

from deedbox.cli import main
from deedbox.facets import installed
from deedbox.settings import Settings, checked
from tests.architecture.sources import ROOT, sources, texts

PAGES = sorted(name for name in texts() if name.endswith(".md") and not name.startswith("tests/"))
COMMANDS = runpy.run_path(str(ROOT / "run"), run_name="run")["COMMANDS"]
OF_THE_MACHINE = {"chmod", "cp", "curl", "pg_dump", "pip", "python", "rm", "sqlite3", "systemctl", "tar", "twine"}
"""Programs that a page may call and that are not ours."""
PRINTED_ELSEWHERE = ("deedbox_halt/", "tests/test_halt.py")
"""Files of the plugin that `docs/plugins.md` prints; `tests/facets/test_outside_plugin.py` installs it."""
ASSIGNMENT = re.compile(r"[A-Z_]+=")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OURS = re.compile(r"(?:node|plugins|wellknown|conformance|tests|docs|\.ci)/[\w./*-]+")


def fences(page: str, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(texts()[page]) if found == language]


def spans(page: str) -> list[str]:
    """What stands in backquotes, fenced listings left out."""
    return SPAN.findall(FENCE.sub("", texts()[page]))


def lines(page: str) -> Iterator[list[str]]:
    """Every command line of a page's `sh` listings, comments left out."""
    for block in fences(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = list(dropwhile(ASSIGNMENT.match, shlex.split(line, comments=True)))
            if words:
                yield words


def deedbox_lines() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for words in lines(page):
            asked = words[2:] if words[:2] == ["./run", "deedbox"] else words[1:] if words[0] == "deedbox" else None
            if asked is not None:
                yield page, shlex.join(asked)


# --- commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_command_line_begins_with_a_program_that_exists(page: str) -> None:
    strange = [words for words in lines(page) if words[0] not in {"./run", "deedbox", *OF_THE_MACHINE}]
    unknown = [words for words in lines(page) if words[0] == "./run" and words[1] not in COMMANDS]
    assert strange + unknown == []


@pytest.mark.parametrize(("page", "line"), sorted(set(deedbox_lines())))
def test_every_deedbox_line_is_understood(page: str, line: str) -> None:
    asked = CliRunner().invoke(main, [*shlex.split(line.partition(" > ")[0]), "--help"])
    assert asked.exit_code == 0, f"{page}: {asked.output}"


@pytest.mark.parametrize("page", PAGES)
def test_every_address_that_is_asked_is_served(page: str) -> None:
    asked = {word for words in lines(page) if words[0] == "curl" for word in words if word.startswith("http")}
    paths = {re.sub(r"^https?://[^/]+|\?.*$", "", address).removeprefix("/.well-known/") for address in asked}
    assert {path for path in paths if not any(f'"{path}"' in source.text for source in sources())} == set()


# --- listings -----------------------------------------------------------------------------------------------------


def of_settings(page: str) -> Iterator[dict[str, Any]]:
    """The page's TOML listings that are pieces of a settings file."""
    for block in fences(page, "toml"):
        told = tomllib.loads(block)
        if told.keys() & Settings.model_fields.keys():
            yield told


@pytest.mark.parametrize("page", PAGES)
def test_every_piece_of_a_settings_file_is_valid(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for told in of_settings(page):
        told.setdefault("node", {}).setdefault("domain", "node.example")
        found = checked(Settings, told, page)
        for name, values in found.facets.items():
            if name in installed():
                checked(installed()[name].load().facet.settings, values, f"{page}: facets.{name}")


@pytest.mark.parametrize("page", PAGES)
def test_every_listing_can_be_read(page: str) -> None:
    for block in fences(page, "json"):
        json.loads(block)
    for block in fences(page, "python"):
        compile(block, page, "exec")


# --- paths and names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    named = {span for span in spans(page) if not span.startswith(PRINTED_ELSEWHERE)}
    paths = {span for span in named if OURS.fullmatch(span)}
    files = {span for span in named - paths if re.fullmatch(r"[\w/]+\.py", span)}
    known = [name for name in texts() if name.endswith(".py")]
    lost = {path for path in paths if not any(ROOT.glob(path.rstrip("/")))}
    assert lost | {file for file in files if not any(f"/{name}".endswith(f"/{file}") for name in known)} == set()


def defined(tree: ast.AST) -> Mapping[str, ast.AST]:
    """What a module or a class defines, by name."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {each.name: each for each in ast.walk(tree) if isinstance(each, kinds)}


@pytest.mark.parametrize("page", PAGES)
def test_every_name_beside_its_file_is_defined_there(page: str) -> None:
    lost = []
    beside = re.findall(r"`([\w/]+\.py)`\s`([A-Za-z_][\w.]*)`", texts()[page])
    listed = re.findall(r"^\| `(\w+)` \| `([\w/]+\.py)` \|", texts()[page], re.MULTILINE)
    for file, name in (*beside, *((file, name) for name, file in listed)):
        found = [source for source in sources() if f"/{source.name}".endswith(f"/{file}")]
        trees: list[ast.AST] = [source.tree for source in found]
        for part in name.split("."):
            trees = [inner[part] for tree in trees if part in (inner := defined(tree))]
        if not trees:
            lost.append((file, name))
    assert lost == []


@pytest.mark.parametrize("page", PAGES)
def test_every_limit_is_a_setting(page: str) -> None:
    for span in spans(page):
        if re.fullmatch(r"limits(?:\.\w+)+", span):
            model: Any = Settings
            for part in span.split("."):
                model = model.model_fields[part].annotation
