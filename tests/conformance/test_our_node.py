"""Our node judged as any other is: over TLS, by name, with the judge as its peer, and every clause must pass."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PROGRAM, said, served
from tests.conformance.courtroom import CLAUSES, LIMITS, NODE, SECONDS, at_judges_bench, faults, judged


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of all clauses."""
    return asyncio.run(judged(tmp_path_factory.mktemp("judged")))


def test_every_clause_passes(report: dict[str, Any]) -> None:
    assert not faults(report), faults(report)
    assert (report["passed"], report["total"], report["conformant"]) == (CLAUSES, CLAUSES, True)
    assert sum(clause["seconds"] for clause in report["clauses"]) < SECONDS


case = pytest.mark.case


@pytest.mark.parametrize(
    "clauses",
    [
        pytest.param("FED-00", marks=case("oip:F0")),
        pytest.param("FED-01", marks=case("oip:F1")),
        pytest.param("FED-02", marks=case("oip:F2")),
        pytest.param("FED-03", marks=case("oip:F3")),
        pytest.param("FED-04", marks=case("oip:F4")),
        pytest.param("FED-05", marks=case("oip:F5")),
        pytest.param("FED-06", marks=case("oip:F6")),
        pytest.param("FED-07", marks=case("oip:F7")),
        pytest.param("FED-08", marks=case("oip:F8")),
        pytest.param("FED-09", marks=case("oip:F9")),
        pytest.param("FED-10", marks=case("oip:F10")),
        pytest.param("FED-11 INBOX-16", marks=case("oip:N2", "oip:W3")),
        pytest.param("INBOX-22", marks=case("oip:N4")),
        pytest.param("INBOX-23", marks=case("oip:N5")),
        pytest.param("INBOX-22 INBOX-23 INBOX-24", marks=case("oip:W10")),
        pytest.param("SHAPE-19", marks=case("oip:N9")),
        pytest.param("DISC-11", marks=case("oip:N12", "oip:W13")),
        pytest.param("INBOX-07", marks=case("oip:W8")),
        pytest.param("INBOX-18", marks=case("oip:W7")),
        pytest.param("FED-13", marks=case("oip:W38")),
        pytest.param("THREAD-05 THREAD-06", marks=case("oip:W43")),
        pytest.param("INBOX-14", marks=case("oip:W51")),
        pytest.param("INBOX-02", marks=case("oip:W56")),
        pytest.param("SHAPE-17", marks=case("oip:W50", "fed:A5")),
        pytest.param("SHAPE-18", marks=case("fed:A9")),
        pytest.param("SIG-09", marks=case("fed:B1")),
        pytest.param("SIG-10", marks=case("fed:B4")),
        pytest.param("SIG-11", marks=case("fed:B7")),
        pytest.param("INBOX-17", marks=case("fed:C4")),
        pytest.param("INBOX-05", marks=case("fed:F6")),
        pytest.param("INBOX-06", marks=case("fed:F11")),
    ],
)
def test_a_row_of_the_specification_is_judged(report: dict[str, Any], clauses: str) -> None:
    outcomes = {clause["id"]: (clause["outcome"], clause["evidence"]) for clause in report["clauses"]}
    for name in clauses.split():
        assert outcomes[f"OIP-{name}"] == ("pass", "")


@pytest.fixture
def founded(tmp_path: Path) -> tuple[Path, str]:
    """A node made by `deedbox init`, with its quotas raised in its file; the file and the owner's key."""
    shared = ("--development", str(tmp_path / "development"))
    made = said("init", NODE, "--folder", str(tmp_path / NODE), *shared, "--json").value
    settings = Path(made["settings"])
    tables = (
        f"[limits.{name}]\n" + "".join(f'{key} = "{rate}"\n' for key, rate in LIMITS[name].items()) for name in LIMITS
    )
    settings.write_text(settings.read_text() + "\n" + "\n".join(tables))
    return settings, str(made["owner_key"])


@pytest.fixture
def arguments(founded: tuple[Path, str], tmp_path: Path) -> Iterator[list[str]]:
    """What to type while `deedbox serve` serves that node."""
    settings, owner_key = founded
    with served("--config", str(settings), folder=settings.parent) as node:
        yield at_judges_bench(tmp_path, int(node.ready.rpartition(":")[2]), owner_key)


def test_an_operator_judges_a_served_node_by_the_command(arguments: list[str]) -> None:
    ended = subprocess.run(
        [*PROGRAM, "conformance", *arguments], capture_output=True, text=True, timeout=2 * SECONDS, check=False
    )
    report = json.loads(ended.stdout)
    assert not faults(report), faults(report)
    assert (ended.returncode, report["passed"]) == (0, CLAUSES)
    assert sum(clause["seconds"] for clause in report["clauses"]) < SECONDS
    assert ended.stderr == ""
