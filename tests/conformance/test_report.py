"""What people and programs get to read, and how the command behaves."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from deedbox_conformance import Clause, Outcome, Report, Result, load_clauses, render_markdown
from deedbox_conformance.__main__ import main
from deedbox_conformance.probe import Probe
from tests.conformance.honest import HonestNode
from tests.conformance.honest_replies import OWNER_KEY
from tests.conformance.world import AGENT, JUDGE, NODE, Papers, lookup_client


async def _unused(_: Probe) -> None:
    return None


def _report(*outcomes: tuple[str, Outcome]) -> Report:
    results = [
        Result(Clause(f"X-{row}", keyword, f"a | b {row}.", "OIP 1.2 §0", "wire", _unused), outcome, "why", 0.1)  # type: ignore[arg-type]
        for row, (keyword, outcome) in enumerate(outcomes)
    ]
    return Report("https://node.test", "oip-1.2", "node", 1_767_323_045_678, results)


@pytest.mark.parametrize(
    ("outcomes", "conformant"),
    [
        ([("MUST", Outcome.PASS), ("SHOULD", Outcome.FAIL), ("MUST", Outcome.NOT_CLAIMED)], True),
        ([("MUST", Outcome.PASS), ("MUST", Outcome.FAIL)], False),
        ([("MUST", Outcome.PASS), ("MUST", Outcome.NOT_TESTABLE)], False),
        ([], False),
    ],
)
def test_only_a_must_decides_and_untested_is_not_met(outcomes: list[tuple[str, Outcome]], conformant: bool) -> None:
    assert _report(*outcomes).conformant is conformant


def test_json_has_the_members_of_a_scorecard() -> None:
    told = json.loads(_report(("MUST", Outcome.PASS), ("MUST", Outcome.NOT_CLAIMED), ("MUST", Outcome.FAIL)).to_json())
    assert told["kind"] == "oip_conformance"
    assert (told["passed"], told["total"], told["applicable"], told["not_applicable"]) == (1, 3, 2, 1)
    assert [clause["pass"] for clause in told["clauses"]] == [True, None, False]
    assert told["ran_at"] == "2026-01-02T03:04:05.678Z"
    assert told["conformant"] is False


def test_text_and_markdown_say_why() -> None:
    report = _report(("MUST", Outcome.FAIL))
    assert "NOT conformant" in report.to_text()
    assert "why" in report.to_text()
    assert "| X-0 | MUST | a \\| b 0. | FAIL | why |" in report.to_markdown()


def test_the_page_of_clauses_names_each_once() -> None:
    page = render_markdown()
    for clause in load_clauses():
        assert page.count(f"| {clause.id} |") == 1
    assert page == render_markdown()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(("defect", "status"), [("", 0), ("skip:audience_mismatch", 1)])
async def test_the_command_judges_a_node(
    defect: str, status: int, papers: Papers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = {JUDGE: ("127.0.0.1", _free_port())}
    lookup = lookup_client(papers, addresses)
    node = HonestNode(NODE, lookup, defect)
    secret = tmp_path / "owner.key"
    secret.write_text(OWNER_KEY)
    try:
        _, port = await node.listener.start("127.0.0.1", 0, papers.served())
        argv = [f"https://{NODE}", "--as", AGENT, "--listen", f"127.0.0.1:{addresses[JUDGE][1]}", "--json"]
        argv += ["--cert", str(papers.certificate), "--key", str(papers.key), "--ca", str(papers.authority)]
        argv += ["--resolve", f"{NODE}=127.0.0.1:{port}", "--owner-key", str(secret), "--patience", "1"]
        assert await asyncio.to_thread(main, argv) == status
    finally:
        await lookup.close()
        await node.listener.close()
    told = json.loads(capsys.readouterr().out)
    failed = [clause["id"] for clause in told["clauses"] if clause["pass"] is not True]
    assert failed == ([] if status == 0 else ["OIP-FED-03"])
    assert OWNER_KEY not in json.dumps(told)


def test_the_command_lists_the_clauses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--profile", "wire", "--only", "OIP-FED"]) == 0
    page = capsys.readouterr().out
    assert "OIP-FED-10" in page
    assert "OIP-FED-11" not in page
    assert "OIP-DISC-01" not in page


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["https://node.test", "--as", AGENT],
        ["https://node.test", "--as", "nobody", "--listen", "127.0.0.1:0"],
        ["https://node.test", "--only", "OIP-NOTHING"],
        ["https://node.test", "--requirements", "oip-9.9"],
        ["https://node.test", "--owner-key", "env:NO_SUCH_VARIABLE_HERE"],
        ["https://node.test", "--owner-key", "no-such-file"],
        ["https://node.test", "--cert", "no-such-file", "--key", "no-such-file"],
        ["https://node.test", "--resolve", "node.test"],
    ],
)
def test_what_cannot_be_meant_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err
