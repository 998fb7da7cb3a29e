"""The house's ceilings: 350 lines a file, 40 a function, and a module that says in a sentence what it is for."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import ROOT, Source, sources

FILE, FUNCTION = 350, 40


def lines(name: str) -> int:
    return len((ROOT / name).read_text(encoding="utf-8").splitlines())


def long_functions(source: Source) -> dict[str, int]:
    functions = (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = {f"{source.name}: {node.name}": (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    return {name: length for name, length in lengths.items() if length > FUNCTION}


def evaluates_annotations(source: Source) -> bool:
    imports = (node for node in source.tree.body if isinstance(node, ast.ImportFrom | ast.Import))
    first = next(imports, None)
    return first is not None and not (isinstance(first, ast.ImportFrom) and first.module == "__future__")


def test_no_file_is_longer_than_the_ceiling() -> None:
    lengths = {name: lines(name) for name in ("run", *(source.name for source in sources()))}
    assert {name: length for name, length in lengths.items() if length > FILE} == {}


def test_no_function_is_longer_than_the_ceiling() -> None:
    assert {name: length for source in sources() for name, length in long_functions(source).items()} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [source.name for source in sources() if source.tree.body and not ast.get_docstring(source.tree)] == []


def test_no_module_evaluates_its_annotations() -> None:
    assert [source.name for source in sources() if evaluates_annotations(source)] == []


@pytest.mark.parametrize(("name", "ceiling"), [("README.md", 200), ("AGENTS.md", 80), ("tests/conftest.py", 120)])
def test_a_page_is_no_longer_than_its_ceiling(name: str, ceiling: int) -> None:
    assert lines(name) <= ceiling
