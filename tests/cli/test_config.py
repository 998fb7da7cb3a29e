"""Checking and showing the settings: every fault that would stop the node is a finding, and no secret is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import said

Founding = Callable[..., Path]
REST = {"schema": True, "assembly": True}


def findings(settings: Path) -> tuple[int, dict[str, Any]]:
    ended = said("config", "check", "--config", str(settings), "--json")
    return ended.status, {each["name"]: each["ok"] for each in ended.value["checks"]}


def test_a_sound_node(found_node: Founding) -> None:
    settings = found_node()
    ended = said("config", "check", "--config", str(settings), "--json")
    told = ended.value
    assert (ended.status, told["ok"]) == (0, True)
    assert {"UPPER", "CAPABILITY_MINT", "QUERY"} <= set(told["objects"])
    assert "/oip/inbox" in told["routes"]
    assert {facet["name"]: facet["on_because"] for facet in told["facets"]}[
        "inbox"
    ] == "[facets.inbox] is in the settings"
    assert "Not promised: Identity gives no authority." in said("config", "check", "--config", str(settings)).out


def test_keys_that_others_may_read(found_node: Founding) -> None:
    settings = found_node()
    next((settings.parent / "keys").glob("*.jwk")).chmod(0o644)
    status, found = findings(settings)
    assert (status, found["keys"]) == (1, False)


@pytest.mark.parametrize("holds", [None, "no certificate\n"])
def test_a_certificate_that_cannot_be_read(found_node: Founding, holds: str | None) -> None:
    settings = found_node()
    files = 'mode = "files"\ncertificate = "chain.pem"\nkey = "key.pem"'
    settings.write_text(settings.read_text().replace('mode = "development"', files))
    for name in ("chain.pem", "key.pem") if holds else ():
        (settings.parent / name).write_text(holds or "")
    assert findings(settings) == (1, {"settings": True, "facets": True, "keys": True, "TLS": False} | REST)
    ended = said("serve", "--config", str(settings))
    assert (ended.status, ended.err.count("\n")) == (1, 2)
    assert "(bad_certificate)" in ended.err


def test_a_facet_that_another_requires(found_node: Founding) -> None:
    settings = found_node()
    settings.write_text(settings.read_text().replace("[facets.wellknown]", "# [facets.wellknown]"))
    status, found = findings(settings)
    assert (status, found["facets"]) == (1, False)


def test_a_database_that_is_not_there(found_node: Founding) -> None:
    settings = found_node()
    (settings.parent / "deedbox.db").unlink()
    status, found = findings(settings)
    assert (status, found["schema"]) == (1, False)
    assert "assembly" not in found


@pytest.mark.parametrize("command", [("serve",), ("config", "check"), ("verify",), ("mint", "row:UPPER")])
@pytest.mark.parametrize("url", ["sqlite:///noise.db", "postgresql://me@127.0.0.1:1/none"])
def test_a_database_that_does_not_answer(found_node: Founding, command: tuple[str, ...], url: str) -> None:
    settings = found_node()
    (settings.parent / "noise.db").write_bytes(b"noise" * 1000)
    settings.write_text(settings.read_text().replace("sqlite:///deedbox.db", url))
    ended = said(*command, "--config", str(settings))
    assert (ended.status, "Traceback" in ended.err) == (1, False)
    why = "file is not a database" if url.startswith("sqlite") else "connection failed"
    assert why in (ended.out if command == ("config", "check") else ended.err)


@pytest.mark.parametrize("command", [("serve",), ("mint", "row:UPPER"), ("config", "check")])
def test_a_domain_that_is_not_the_databases(found_node: Founding, command: tuple[str, ...]) -> None:
    settings = found_node()
    text = settings.read_text()
    settings.write_text(text.replace('domain = "alpha.test"', 'domain = "gamma.test"'))
    ended = said(*command, "--config", str(settings))
    assert ended.status == 1
    assert "this database is that of alpha.test" in ended.out + ended.err
    settings.write_text(text)
    assert said("verify", "--config", str(settings)).status == 0


def test_a_slip_names_the_nearest_key(found_node: Founding) -> None:
    settings = found_node()
    settings.write_text(settings.read_text().replace("zone =", "zonne ="))
    ended = said("config", "check", "--config", str(settings))
    assert ended.status == 1
    assert "did you mean zone?" in ended.err


def test_show_lays_the_environment_over_the_file(found_node: Founding, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = found_node()
    monkeypatch.setenv("DEEDBOX_LIMITS__INBOX__RATE", "9/min")
    shown = said("config", "show", "--config", str(settings)).out
    assert 'limits.inbox.rate = "9/min"' in shown
    assert 'node.domain = "alpha.test"' in shown


def test_show_hides_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "deedbox.toml"
    settings.write_text('[node]\ndomain = "alpha.test"\ndatabase = "postgresql://me:hunter2@db.test/deeds"\n')
    monkeypatch.setenv("DEEDBOX_CONFIG", str(settings))
    for options in ((), ("--json",)):
        shown = said("config", "show", *options).out
        assert "hunter2" not in shown
        assert "postgresql://me:…@db.test/deeds" in shown
