"""What a suite of `./run` collects: for PostgreSQL its own folder and every test of both engines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

from tests.architecture.sources import ROOT


def beside_suites() -> Callable[[], list[str]]:
    """The function of that name in `run`, which has no suffix."""
    spec = spec_from_loader("run", SourceFileLoader("run", str(ROOT / "run")))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[], list[str]] = module.beside_suites
    return found


def test_the_suite_of_postgresql_collects_its_folder_and_the_tests_of_both_engines() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "engines", "-p", "no:cacheprovider"]
    places = ["tests/suites/postgres", *beside_suites()()]
    said = subprocess.run([*command, *places], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {line.partition("::")[0] for line in said.splitlines() if "::" in line}
    own = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/suites/postgres").glob("test_*.py")}
    assert own <= files
    assert {"tests/kernel/test_storage.py", "tests/facets/test_across_domains.py"} <= files
