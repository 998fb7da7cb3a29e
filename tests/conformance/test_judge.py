"""The judge judged: every clause passes on an honest node and fails on its saboteur, and nothing untried is green."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from deedbox_conformance import Clause, Outcome, Probe, Result, judge, load_clauses, required
from deedbox_conformance.clauses import federation
from deedbox_conformance.probe import Token
from deedbox_conformance.report import Report
from deedbox_conformance.suite import BUILT_IN, modules, select
from tests.conformance.saboteurs import SABOTEURS
from tests.conformance.world import Papers, running

CLAUSES = load_clauses()
IDS = [clause.id for clause in CLAUSES]


@pytest.fixture(scope="module")
def honest(papers: Papers) -> dict[str, Result]:
    """One run of all clauses against the honest node, in the order of the suite."""

    async def run() -> list[Result]:
        async with running(papers) as probe:
            return await judge(probe, CLAUSES)

    return {result.clause.id: result for result in asyncio.run(run())}


@pytest.mark.parametrize("name", IDS)
def test_an_honest_node_passes(name: str, honest: dict[str, Result]) -> None:
    assert (honest[name].outcome, honest[name].detail) == (Outcome.PASS, "")


@pytest.mark.parametrize("clause", CLAUSES, ids=IDS)
async def test_the_saboteur_fails(clause: Clause, papers: Papers) -> None:
    async with running(papers, SABOTEURS[clause.id]) as probe:
        result = await clause.judge(probe)
    assert result.outcome is Outcome.FAIL, result
    assert result.detail


@pytest.mark.parametrize("clause", CLAUSES, ids=IDS)
async def test_each_clause_stands_alone(clause: Clause, papers: Papers) -> None:
    async with running(papers) as probe:
        assert (await clause.judge(probe)).outcome is Outcome.PASS


def test_every_clause_has_a_saboteur() -> None:
    assert set(SABOTEURS) == set(IDS)


def test_the_frozen_list_names_every_clause_where_it_belongs() -> None:
    frozen = required("oip-1.2")
    assert {clause.id for clause in CLAUSES if clause.origin == "wire"} == set(frozen.wire)
    assert {clause.id for clause in CLAUSES if clause.origin == "node"} == set(frozen.node)
    assert frozen.ids("wire") < frozen.ids("node") == set(IDS)
    with pytest.raises(LookupError):
        required("oip-9.9")


def test_clauses_are_one_sentence_with_a_reference_and_there_is_no_id_twice() -> None:
    assert len(IDS) == len(set(IDS))
    for clause in CLAUSES:
        assert clause.sentence.endswith(".")
        assert clause.reference.startswith("OIP 1.2 §")
        assert clause.keyword in ("MUST", "SHOULD")


def test_the_built_in_claims_are_found_with_and_without_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BUILT_IN.items() <= modules().items()
    monkeypatch.setattr("deedbox_conformance.suite.metadata.entry_points", lambda group: ())
    assert modules() == BUILT_IN


async def test_without_a_peer_what_needs_one_is_not_testable_and_says_so(papers: Papers) -> None:
    async with running(papers, as_peer=False) as probe:
        results = await judge(probe, CLAUSES)
    outcomes = {result.clause.id: result for result in results}
    untried = [result for result in results if result.outcome is Outcome.NOT_TESTABLE]
    assert {result.outcome for result in results} == {Outcome.PASS, Outcome.NOT_TESTABLE}
    assert all("--as" in result.detail or "--owner-key" in result.detail for result in untried)
    for name in ("OIP-DISC-01", "OIP-SHAPE-09", "OIP-SIG-12", "OIP-REPLY-01", "OIP-INBOX-08", "OIP-LEDGER-01"):
        assert outcomes[name].outcome is Outcome.PASS
    for name in ("OIP-FED-01", "OIP-INBOX-15", "OIP-SIG-06"):
        assert outcomes[name].outcome is Outcome.NOT_TESTABLE
    assert not Report("x", "oip-1.2", "node", 0, results).conformant


async def test_without_the_owners_key_nothing_can_be_minted(papers: Papers) -> None:
    async with running(papers, owner=False) as probe:
        results = await judge(probe, federation.CLAUSES)
    untried = {result.clause.id for result in results if result.outcome is Outcome.NOT_TESTABLE}
    passed = {result.clause.id for result in results if result.outcome is Outcome.PASS}
    assert passed == {f"OIP-FED-{row}" for row in ("00", "01", "07", "09", "18")}
    assert len(untried) == len(results) - len(passed)


async def test_a_token_that_was_handed_over_serves_where_the_owners_key_would(papers: Papers) -> None:
    async with running(papers) as probe:
        minted = await federation.mint(probe)
        probe.token = Token.of(minted.text)
        probe._owner_key = None
        results = {result.clause.id: result.outcome for result in await judge(probe, federation.CLAUSES)}
    good = {name for name, outcome in results.items() if outcome is Outcome.PASS}
    assert {f"OIP-FED-{row:02d}" for row in (*range(8), 9, 10, 11, 12, 13, 14)} <= good
    assert results["OIP-FED-08"] is Outcome.NOT_TESTABLE


async def test_what_was_never_claimed_is_not_held_against_a_node(papers: Papers) -> None:
    async with running(papers, "claims nothing") as probe:
        results = {result.clause.id: result.outcome for result in await judge(probe, CLAUSES)}
    unclaimed = {name for name, outcome in results.items() if outcome is Outcome.NOT_CLAIMED}
    assert {"OIP-DISC-10", "OIP-FED-02", "OIP-FED-08", "OIP-FED-17"} <= unclaimed
    assert set(results.values()) == {Outcome.PASS, Outcome.NOT_CLAIMED}


async def test_a_node_that_is_not_there_fails_and_leaves_the_rest_untestable(papers: Papers) -> None:
    async with running(papers) as probe:
        probe.base = "https://127.0.0.1:1"
        first, *others = await judge(probe, CLAUSES)
    assert (first.clause.id, first.outcome) == ("OIP-DISC-01", Outcome.FAIL)
    assert {result.outcome for result in others} <= {Outcome.NOT_TESTABLE, Outcome.FAIL}
    assert not any(result.outcome.good for result in others)


async def test_a_mistake_of_the_judge_is_never_a_pass(papers: Papers) -> None:
    async def mistaken(_: Probe) -> None:
        raise KeyError("oops")

    async with running(papers) as probe:
        result = await replace(CLAUSES[0], check=mistaken).judge(probe)
    assert result.outcome is Outcome.NOT_TESTABLE
    assert "the judge itself failed" in result.detail
    assert result.fatal


async def test_findings_tell_no_secret(papers: Papers) -> None:
    async with running(papers) as probe:
        token = (await federation.mint(probe)).text
        told = probe.redacted(f"seen {token} and {probe._owner_key}")
    assert told == "seen <token> and <owner key>"


async def test_a_rate_limit_is_waited_out_but_not_for_ever(papers: Papers) -> None:
    async with running(papers, "limits once") as probe:
        assert (await federation.CLAUSES[1].judge(probe)).outcome is Outcome.PASS
    async with running(papers, "limits always") as probe:
        result = await federation.CLAUSES[1].judge(probe)
    assert result.outcome is Outcome.NOT_TESTABLE
    assert "--patience" in result.detail


def test_clauses_can_be_chosen_by_the_start_of_their_id() -> None:
    chosen = select(CLAUSES, None, ["OIP-FED-0", "OIP-DISC-01"])
    assert [clause.id for clause in chosen] == ["OIP-DISC-01", *(f"OIP-FED-{row:02d}" for row in range(10))]
    assert select(CLAUSES, frozenset({"OIP-FED-10"})) == [clause for clause in CLAUSES if clause.id == "OIP-FED-10"]
