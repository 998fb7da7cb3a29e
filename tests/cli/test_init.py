"""The first run: what it writes, that others cannot read it, that it overwrites nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from deedbox.cli.init import FACETS
from deedbox.settings import load
from tests.cli.conftest import said
from tests.postgres import free_port

Founding = Callable[..., Path]


def test_a_public_node_is_told_what_to_publish(tmp_path: Path) -> None:
    ended = said("init", "node.example", "--folder", str(tmp_path / "new"), "--json")
    told = ended.value
    assert ended.status == 0
    assert [(row["name"], row["type"]) for row in told["dns"]] == [("node.example.", "A"), ("node.example.", "AAAA")]
    assert told["owner_key"].startswith("ok_")
    assert list(told["agents"]) == ["node@node.example"]
    settings = load(tmp_path / "new" / "deedbox.toml")
    assert list(settings.facets) == list(FACETS)
    assert settings.node.tls.mode == "proxy"


def test_people_see_the_owner_key_and_the_records_once(tmp_path: Path) -> None:
    first = said("init", "node.example", "--folder", str(tmp_path))
    assert "The owner key, told this once: ok_" in first.out
    assert "node.example." in first.out
    assert "AAAA" in first.out
    again = said("init", "--upgrade", "--folder", str(tmp_path))
    assert again.status == 0
    assert "ok_" not in again.out


def test_nothing_it_writes_is_for_others(found_node: Founding) -> None:
    folder = found_node().parent
    exposed = [path.name for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]
    assert exposed == []
    assert len(list((folder / "keys").glob("*.jwk"))) == 2


def test_nothing_is_overwritten(found_node: Founding, tmp_path: Path) -> None:
    settings = found_node()
    before = {path: path.read_bytes() for path in settings.parent.rglob("*") if path.is_file()}
    again = said("init", "alpha.test", "--folder", str(settings.parent))
    assert again.status == 1
    assert "already_there" in again.err
    assert {path: path.read_bytes() for path in settings.parent.rglob("*") if path.is_file()} == before


def test_an_interrupted_first_run_is_completed(found_node: Founding) -> None:
    settings = found_node()
    (settings.parent / "keys" / "owner.sha256").unlink()
    completed = said("init", "--upgrade", "--folder", str(settings.parent), "--json")
    assert completed.value["owner_key"].startswith("ok_")
    assert completed.value["agents"].keys() == {"node@alpha.test"}


@pytest.mark.parametrize("domain", ["", "not a domain", "127.0.0.1", "localhost"])
def test_a_name_that_is_no_domain_is_refused_before_anything_is_written(domain: str, tmp_path: Path) -> None:
    ended = said("init", domain, "--folder", str(tmp_path / "new"))
    assert ended.status != 0
    assert not (tmp_path / "new" / "deedbox.toml").exists()
    assert not (tmp_path / "new" / "keys").exists()


def test_a_domain_is_needed() -> None:
    assert said("init").status == 2


def test_development_is_for_test_names_only(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    ended = said("init", "node.example", "--folder", str(tmp_path / "new"), "--development", shared)
    assert ended.status == 1
    assert not (tmp_path / "new" / "keys").exists()


def test_agents_are_named_in_the_file_and_have_keys(found_node: Founding) -> None:
    settings = found_node("beta.test", "--agent", "desk", "--agent", "archive")
    assert tomllib.loads(settings.read_text())["node"]["agents"] == ["desk", "archive"]
    assert len(list((settings.parent / "keys").glob("*.jwk"))) == 3


def test_a_server_that_does_not_answer_is_told_with_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEDBOX_NODE__DATABASE", f"postgresql://nobody@127.0.0.1:{free_port()}/nothing")
    ended = said("init", "node.example", "--folder", str(tmp_path / "new"))
    assert (ended.status, ended.err.count("\n")) == (1, 2)
    assert "store_unavailable" in ended.err
    assert "connection failed" in ended.err
