"""Imports only go down: the contracts of pyproject.toml hold, cover every package, and each can be broken."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SOURCE_ROOTS, packages, sources

ENGINES = re.compile(r"\b(?:create_engine|create_async_engine|sqlite3\.connect|psycopg\.connect)\(")
OFFLINE_READER = "node/deedbox/ledger/records.py"
"""Part of the offline verifier, which stands on the standard library and opens a ledger's file to read it only."""
BEHIND_OUR_BACK = {"urllib.request", "http.client", "ftplib", "telnetlib"}
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

BREAKS = {
    "the kernel has floors": ("node/deedbox/clock.py", "import deedbox.storage"),
    "facets know the kernel and never each other": ("node/deedbox/refusals.py", "import deedbox_wellknown"),
    "facets reach road, ledger and database only by what deedbox offers": (
        "wellknown/deedbox_wellknown/publish.py",
        "import deedbox.storage",
    ),
    "the judge stands outside": ("conformance/deedbox_conformance/wire.py", "import deedbox.clock"),
    "nothing speaks HTTP or SMTP behind our back": ("node/deedbox/canonical.py", "import smtplib"),
    "one way out to the network": ("node/deedbox/identity/keys.py", "import httpx2"),
    "one way in to the database": ("node/deedbox/identity/jwk.py", "import sqlite3"),
}
"""For each contract a line that breaks it."""


def lint(folder: Path) -> str:
    """What import-linter says of a checkout, whose sources stand in for the installed ones."""
    roots, installed = ([str(place / root) for root in SOURCE_ROOTS] for place in (folder, ROOT))
    paths = f"import sys; sys.path[:] = {roots!r} + [path for path in sys.path if path not in {installed!r}]"
    command = [sys.executable, "-P", "-c", f"{paths}; {LINT}"]
    linted = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return linted.stdout + linted.stderr


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_the_contracts_hold() -> None:
    report = lint(ROOT)
    assert f"Contracts: {len(CONTRACTS['contracts'])} kept, 0 broken." in report, report


def test_every_contract_can_be_broken(tmp_path: Path) -> None:
    for root in SOURCE_ROOTS:
        shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, line in BREAKS.values():
        with (tmp_path / file).open("a", encoding="utf-8") as source:
            source.write(f"\n{line}\n")
    report = lint(tmp_path)
    broken = set(re.findall(r"^(.+?) BROKEN", report, re.MULTILINE))
    assert broken == {contract["name"] for contract in CONTRACTS["contracts"]}, report


def test_every_package_stands_under_the_contracts() -> None:
    assert sorted(CONTRACTS["root_packages"]) == packages()


def test_only_storage_creates_an_engine() -> None:
    creators = [source for source in sources() if ENGINES.search(source.text)]
    outside = {source.name: source for source in creators if not source.name.startswith("node/deedbox/storage/")}
    offline = outside.pop(OFFLINE_READER, None)
    assert list(outside) == []
    assert offline is None or "mode=ro" in offline.text


@pytest.mark.parametrize("module", sorted(BEHIND_OUR_BACK))
def test_the_standard_library_fetches_nothing(module: str) -> None:
    assert [source.name for source in sources() if module in imports(source.tree)] == []
