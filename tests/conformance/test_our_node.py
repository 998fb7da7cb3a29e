"""Our node judged as any other is: over TLS, by name, with the judge as its peer, and every clause must pass."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deedbox import testing
from deedbox.cli.init import FACETS
from deedbox_conformance.__main__ import main as judge
from deedbox_wellknown.development import LocalAuthority, LoopbackResolver
from tests.cli.conftest import PROGRAM, said, served
from tests.postgres import free_port

NODE, JUDGE = "alpha.test", "judge.test"
CLAUSES = 107
SECONDS = 20
LIMITS = {
    "inbox": {"rate": "6000/min", "unverified": "6000/min"},
    "dispatch": {"shield": "6000/min"},
    "shield": {"address": "60000/min", "failures": "6000/min"},
}
"""One peer asks everything within seconds, so its quota is raised; the counters still run."""


def at_judges_bench(folder: Path, port: int, owner_key: str) -> list[str]:
    """What an operator types who runs the judge on this machine, beside a node that serves on a port."""
    own, authority = free_port(), LocalAuthority(folder / "development/authority")
    LoopbackResolver(folder / "development/names").register(JUDGE, own)
    papers = str(authority.issue(JUDGE))
    secret = folder / "owner.key"
    secret.write_text(owner_key)
    return [
        f"https://{NODE}",
        *("--as", f"agent@{JUDGE}"),
        *("--listen", f"127.0.0.1:{own}"),
        *("--cert", papers),
        *("--key", papers),
        *("--owner-key", str(secret)),
        *("--ca", str(authority.certificate)),
        *("--resolve", f"{NODE}=127.0.0.1:{port}"),
        "--json",
    ]


async def judged(folder: Path) -> tuple[int, str]:
    """The judge's exit status and what it printed of a node in this process."""
    facets: dict[str, dict[str, Any]] = {name: {} for name in FACETS}
    development = folder / "development"
    async with testing.a_node(folder / NODE, NODE, facets=facets, development=development, limits=LIMITS) as node:
        arguments = at_judges_bench(folder, node.port, node.owner_key)
        with contextlib.redirect_stdout(io.StringIO()) as told:
            status = await asyncio.to_thread(judge, arguments)
    return status, told.getvalue()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of all clauses."""
    status, told = asyncio.run(judged(tmp_path_factory.mktemp("judged")))
    found: dict[str, Any] = json.loads(told)
    assert (status == 0) is found["conformant"]
    return found


def faults(report: dict[str, Any]) -> str:
    """What did not pass, a line each."""
    return "\n".join(
        f"{clause['id']} {clause['outcome']}: {clause['title']} {clause['evidence']}"
        for clause in report["clauses"]
        if clause["outcome"] != "pass"
    )


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
