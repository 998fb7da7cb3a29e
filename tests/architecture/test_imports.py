"""Nothing heavy at import: what `deedbox --help` and the offline verifier load is counted, not timed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.sources import packages

HEAVY = {"alembic", "aiosmtpd", "cryptography", "dns", "httpx2", "litestar", "pydantic", "pydantic_settings"}
HEAVY |= {"prometheus_client", "psycopg", "sqlalchemy", "sqlmodel", "uvicorn", "uvloop"}
VERIFIER_MAY_LOAD = {"cryptography", "nacl", "rfc8785", "cffi", "_cffi_backend", "deedbox"}


HELP = """
import sys
from deedbox.cli import main
sys.argv = ["deedbox", "--help"]
try:
    main()
except SystemExit:
    pass
"""


def run(program: str) -> set[str]:
    report = "print('\\n' + ' '.join({name.partition('.')[0] for name in __import__('sys').modules}))"
    command = [sys.executable, "-c", f"{program}\n{report}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(said.splitlines()[-1].split())


def loaded(program: str) -> set[str]:
    """The top-level modules a fresh interpreter holds after the program, over those it holds anyway."""
    return run(program) - run("")


def test_help_loads_nothing_heavy() -> None:
    found = loaded(HELP)
    assert "click" in found
    assert found & HEAVY == set()
    assert found & (set(packages()) - {"deedbox"}) == set()


def test_the_package_itself_loads_nothing_heavy() -> None:
    assert loaded("import deedbox") & HEAVY == set()


def test_the_offline_verifier_stands_on_little() -> None:
    found = loaded("import deedbox.ledger.verify") - set(sys.stdlib_module_names)
    assert {name for name in found if not name.startswith("_")} - VERIFIER_MAY_LOAD == set()


@pytest.mark.parametrize("module", ["deedbox_conformance", "deedbox_conformance.wire"])
def test_the_judge_loads_nothing_of_ours(module: str) -> None:
    assert loaded(f"import {module}") & (set(packages()) - {"deedbox_conformance"}) == set()
