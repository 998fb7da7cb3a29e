"""The house's ceilings: 350 lines a file, 40 a function, and a module that says in a sentence what it is for."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import ROOT, Source, sources

FILE, FUNCTION = 350, 40


def named(source: Source) -> str:
    return source.name


@pytest.fixture(params=sources(), ids=named)
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.param
    return found


def test_a_file_is_no_longer_than_the_ceiling(source: Source) -> None:
    assert len(source.text.splitlines()) <= FILE


def test_the_run_script_is_no_longer_than_the_ceiling() -> None:
    assert len((ROOT / "run").read_text(encoding="utf-8").splitlines()) <= FILE


def test_a_function_is_no_longer_than_the_ceiling(source: Source) -> None:
    functions = (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > FUNCTION} == {}


def test_a_module_says_what_it_is_for(source: Source) -> None:
    assert not source.tree.body or ast.get_docstring(source.tree)


def test_annotations_are_not_evaluated(source: Source) -> None:
    imports = (node for node in source.tree.body if isinstance(node, ast.ImportFrom | ast.Import))
    first = next(imports, None)
    assert first is None or (isinstance(first, ast.ImportFrom) and first.module == "__future__")


@pytest.mark.parametrize(("name", "ceiling"), [("README.md", 200), ("AGENTS.md", 80), ("tests/conftest.py", 120)])
def test_a_page_is_no_longer_than_its_ceiling(name: str, ceiling: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= ceiling
