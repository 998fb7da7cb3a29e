"""Sending from the terminal: beside a running node, with a token that no other process can read."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from deedbox.cli.messages import body_of, token_from
from tests.cli.conftest import said, served

Founding = Callable[..., Path]


def test_a_query_an_invoke_and_a_sealed_question(found_node: Founding, tmp_path: Path) -> None:
    alpha, beta = found_node("alpha.test"), found_node("beta.test")
    with ExitStack() as stack:
        for settings in (alpha, beta):
            stack.enter_context(served("--config", str(settings), folder=settings.parent))
        asked = said("send", "node@beta.test", "query", "--text", "hello", "--config", str(alpha))
        assert asked.status == 0, asked.err
        assert '"text": "hello"' in asked.out
        assert "result, verified" in asked.out

        minted = said("mint", "row:UPPER", "--audience", "node@alpha.test", "--config", str(beta), "--json")
        token = tmp_path / "token"
        token.write_text(minted.value["value"]["share_token"] + "\n")
        invoke = ("send", "node@beta.test", "invoke", "--key", "UPPER", "--args", "deed", "--capability", str(token))
        ran = said(*invoke, "--encrypt", "--conversation", "c-1", "--config", str(alpha), "--json").value["value"]
        assert ran["response_body"]["result"] == "DEED"
        assert ran["conversation"] == "c-1"
        assert token.read_text().strip() not in str(ran)
        spent = said(*invoke, "--config", str(alpha), "--json").value["value"]
        assert spent["response_body"]["reason"] == "token_exhausted"


def test_what_cannot_be_delivered_stays_in_the_outbox(found_node: Founding) -> None:
    settings = found_node()
    ended = said("send", "node@nobody.test", "query", "--text", "x", "--config", str(settings), "--json")
    assert ended.status == 1
    standing = ended.value["value"]
    assert (standing["state"], standing["response_verified"]) == ("queued", False)
    assert standing["detail"].startswith("recipient_unresolvable:")


def test_what_no_facet_offers_is_refused_with_the_facet(found_node: Founding) -> None:
    settings = found_node()
    text = settings.read_text().replace("[facets.https]", "# ").replace("[facets.capabilities]", "# ")
    settings.write_text(text)
    for command, facet in ((("send", "a@b.test", "query"), "https"), (("mint", "row:UPPER"), "capabilities")):
        ended = said(*command, "--config", str(settings))
        assert (ended.status, f"add a table [facets.{facet}]" in ended.err) == (1, True)


def test_what_is_no_agent_is_refused(found_node: Founding) -> None:
    ended = said("send", "nobody", "query", "--config", str(found_node()))
    assert ended.status == 1
    assert "(bad_arguments)" in ended.err


def test_a_token_does_not_stand_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(click.UsageError):
        token_from("sh.1.read.0.nonce.mac")
    monkeypatch.setenv("DEED_TOKEN", "sh.fine")
    assert token_from("env:DEED_TOKEN") == "sh.fine"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"sh.piped\n")))
    assert token_from("-") == "sh.piped"
    ended = said("send", "a@b.test", "query", "--capability", str(tmp_path / "none"))
    assert "(no_token)" in ended.err


def test_a_body_is_what_the_options_say() -> None:
    assert body_of("query", "hello", None, None, None) == {"text": "hello"}
    assert body_of("propose", None, '{"a": 1}', None, None) == {"a": 1}
    assert body_of("invoke", None, None, "UPPER", "x") == {"key": "UPPER", "args": "x"}
    with pytest.raises(click.BadParameter):
        body_of("query", None, "[1]", None, None)
    for given in (
        ("invoke", None, None, None, "x"),
        ("query", "hello", "{}", None, None),
        ("query", None, None, "UPPER", None),
        ("invoke", None, "{}", "UPPER", None),
    ):
        with pytest.raises(click.UsageError):
            body_of(*given)
