"""Minting, explaining and revoking at the owner's terminal, where no node serves."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import said

Founding = Callable[..., Path]


def minted(settings: Path, *options: str) -> dict[str, Any]:
    ended = said("mint", *options, "--config", str(settings), "--json")
    assert ended.status == 0, ended.out
    value: dict[str, Any] = ended.value["value"]
    return value


def explained(settings: Path, capability: str) -> dict[str, Any]:
    value: dict[str, Any] = said("explain", capability, "--config", str(settings), "--json").value["value"]
    return value


def test_what_is_minted_can_be_explained_and_revoked(found_node: Founding) -> None:
    settings = found_node()
    made = minted(settings, "row:UPPER", "--audience", "node@beta.test", "--uses", "3", "--ttl", "600")
    assert (made["scope"], made["max_uses"], made["audience"]) == ("row:UPPER", 3, "node@beta.test")
    token, fingerprint = made["share_token"], made["fingerprint"]
    assert fingerprint == f"cap_{hashlib.sha256(token.encode()).hexdigest()[:16]}"
    assert explained(settings, fingerprint)["valid"] is True
    assert explained(settings, token)["capability"]["uses"]["remaining"] == 3
    ended = said("revoke", token, "--config", str(settings))
    assert f"{fingerprint} is revoked" in ended.out
    assert "was revoked before" in said("revoke", fingerprint, "--config", str(settings)).out
    assert explained(settings, fingerprint)["reason"] == "revoked"


def test_people_are_told_the_token_once(found_node: Founding) -> None:
    settings = found_node()
    ended = said("mint", "rows:UPPER,NOW", "--purpose", "a try", "--config", str(settings))
    token = ended.out.split()[-1]
    assert token.startswith("sh.")
    assert "a try" in ended.out
    told = said("explain", token, "--config", str(settings))
    assert told.out.startswith("valid")
    assert token not in told.out


def test_the_token_is_kept_nowhere(found_node: Founding) -> None:
    settings = found_node()
    token = minted(settings, "row:UPPER")["share_token"]
    said("explain", token, "--config", str(settings))
    said("revoke", token, "--config", str(settings))
    kept = [path for path in settings.parent.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert kept == []


def test_each_leaves_a_receipt_of_the_owner(found_node: Founding) -> None:
    settings = found_node()
    fingerprint = minted(settings, "row:UPPER")["fingerprint"]
    told = said("revoke", fingerprint, "--config", str(settings), "--json").value
    assert told["receipt"]["seq"] > 1
    with sqlite3.connect(settings.parent / "deedbox.db") as database:
        (payload,) = database.execute("select payload from ledger_payload where seq = 1").fetchone()
    database.close()
    assert b'"actor":"owner"' in bytes(payload)
    assert fingerprint.encode() in bytes(payload)


def test_a_no_is_told_with_its_code(found_node: Founding) -> None:
    settings = found_node()
    ended = said("mint", "row:NOTHING", "--config", str(settings))
    assert ended.status == 1
    assert "(unknown_capability)" in ended.err
    ended = said("revoke", "cap_0000000000000000", "--config", str(settings), "--json")
    assert (ended.status, ended.value["error"]) == (1, "unknown_capability")
    ended = said("mint", "act", "--uses", "0", "--config", str(settings))
    assert "(unlimited_not_explicit)" in ended.err


@pytest.mark.parametrize(
    "terms", [("UPPER",), ("rowUPPER",), ("row:UPPER", "--ttl", "5"), ("row:UPPER", "--max-body-bytes", "-1")]
)
def test_a_slip_mints_nothing(terms: tuple[str, ...]) -> None:
    """On the wire these would be clamped, and a word that is no scope would be ``read``."""
    assert said("mint", *terms, "--config", "nowhere.toml").status == 2


def test_settings_are_needed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    ended = said("mint", "row:UPPER")
    assert ended.status == 1
    assert "deedbox init DOMAIN" in ended.err
    assert "no file" in said("mint", "row:UPPER", "--config", "nowhere.toml").err
