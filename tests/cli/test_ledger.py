"""Verifying, exporting and proving at the terminal: the first bad entry is named, and nothing needs a node."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from deedbox.cli.books import copy_ledger
from deedbox.clock import Ids, SystemClock
from deedbox.ledger.chain import Ledger
from deedbox.ledger.records import SqliteFile
from deedbox.ledger.verify import verify
from deedbox.storage.database import Database
from deedbox.storage.migrate import KERNEL, upgrade
from deedbox.storage.unit import Unit
from tests.cli.conftest import said


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node whose ledger has four entries of its owner's, and as many events."""
    folder = tmp_path_factory.mktemp("filled") / "alpha.test"
    shared = str(folder.parent / "development")
    assert said("init", "alpha.test", "--folder", str(folder), "--development", shared).status == 0
    settings = str(folder / "deedbox.toml")
    for scope in ("row:UPPER", "row:ECHO", "row:NOW", "read"):
        minted = said("mint", scope, "--config", settings, "--json").value["value"]
        said("explain", minted["fingerprint"], "--config", settings)
    return folder


@pytest.fixture
def settings(filled: Path, tmp_path: Path) -> Path:
    """The settings of a copy of it."""
    shutil.copytree(filled, tmp_path / "alpha.test")
    return tmp_path / "alpha.test" / "deedbox.toml"


def test_the_nodes_own_ledger(settings: Path) -> None:
    ended = said("ledger", "verify", "--config", str(settings), "--json")
    assert ended.status == 0
    told = ended.value
    assert told["state"] == "consistent, length unproven"
    assert told["counts"]["events"] == 4
    assert told["counts"]["checkpoints"] == told["counts"]["checkpoints_signed"] > 0
    assert any("length" in gap for gap in told["not_checked"])
    assert "not checked: the length" in said("verify", "--config", str(settings)).out


def test_a_ledger_that_the_key_given_did_not_sign(settings: Path, tmp_path: Path) -> None:
    """A stranger writes a ledger in somebody's name: it agrees with itself, and the name's key says no."""
    forged, target = tmp_path / "forged", tmp_path / "forged.jsonl"
    founding = ("init", "alpha.test", "--folder", str(forged), "--development", str(tmp_path / "development"))
    assert said(*founding).status == 0
    said("mint", "row:UPPER", "--config", str(forged / "deedbox.toml"))
    said("ledger", "export", str(target), "--config", str(forged / "deedbox.toml"))
    genuine = said("init", "--upgrade", "--folder", str(settings.parent), "--json").value["ledger_key"]
    assert said("verify", str(target), "--origin", "alpha.test").status == 0
    ended = said("verify", str(target), "--key", genuine)
    assert (ended.status, "(unknown_signer)" in ended.err) == (1, True)
    told = said("verify", str(target), "--key", genuine, "--json")
    assert (told.status, told.value["ok"], told.value["error"]) == (1, False, "unknown_signer")
    assert said("verify", str(settings.parent / "deedbox.db"), "--key", genuine).status == 0


def test_an_export_says_the_same_as_the_database(settings: Path, tmp_path: Path) -> None:
    target = tmp_path / "ledger.jsonl"
    assert said("ledger", "export", str(target), "--config", str(settings)).status == 0
    assert target.stat().st_mode & 0o077 == 0
    own = said("verify", "--config", str(settings), "--json").value
    exported = said("verify", str(target), "--json").value
    assert (exported["root"], exported["size"], exported["counts"]) == (own["root"], own["size"], own["counts"])
    piped = said("verify", "--config", str(settings), "-", given=target.read_text())
    assert piped.status == 0
    again = said("ledger", "export", str(target), "--config", str(settings))
    assert "(already_there)" in again.err
    nowhere = said("ledger", "export", str(tmp_path / "no" / "where"), "--config", str(settings))
    assert (nowhere.status, nowhere.err.count("\n")) == (1, 1)


def test_an_export_without_payloads_shows_no_contents(settings: Path) -> None:
    bare = said("ledger", "export", "--without-payloads", "--config", str(settings)).out
    assert "CAPABILITY_MINT" not in bare
    assert said("verify", "-", given=bare).status == 0


def test_the_first_bad_entry_is_named(settings: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy_ledger(f"sqlite:///{settings.parent / 'deedbox.db'}", copy)
    with sqlite3.connect(copy) as database:
        database.execute("update ledger_payload set payload = '{}' where seq = 3")
    database.close()
    ended = said("verify", str(copy), "--json")
    assert ended.status == 1
    assert (ended.value["state"], ended.value["first_bad"]) == ("broken", 3)
    assert "the first bad entry is 3" in said("verify", str(copy)).out


def test_a_copy_is_the_ledger(settings: Path, tmp_path: Path) -> None:
    copy_ledger(f"sqlite:///{settings.parent / 'deedbox.db'}", tmp_path / "copy.db")
    copied = said("verify", str(tmp_path / "copy.db"), "--json").value
    own = said("verify", str(settings.parent / "deedbox.db"), "--json").value
    assert (copied["root"], copied["counts"]) == (own["root"], own["counts"])


async def test_a_ledger_of_either_engine_is_copied_to_be_read(database_url: str, tmp_path: Path) -> None:
    upgrade(database_url, {"kernel": KERNEL})
    database, ledger = Database(database_url), Ledger("alpha.test", Ids(SystemClock()))

    def fill(unit: Unit) -> None:
        for number in range(300):
            ledger.entry(unit, "noted", "somebody", {"n": number})
            ledger.event(unit, {"ts": unit.now, "n": number})

    try:
        await database.run(fill)
    finally:
        database.close()
    copy_ledger(database_url, tmp_path / "copy.db")
    verdict = verify(SqliteFile(tmp_path / "copy.db"))
    assert verdict.good
    assert (verdict.size, verdict.counts.payloads, verdict.counts.events_unsealed) == (300, 300, 300)


def test_a_head_that_others_kept_shows_a_cut(settings: Path, tmp_path: Path) -> None:
    own = said("verify", "--config", str(settings), "--json").value
    head = f"{own['size']}:{own['root']}"
    kept = said("verify", "--head", head, "--config", str(settings), "--json").value
    assert (kept["state"], kept["witnessed_size"]) == ("valid to a witnessed size", own["size"])
    longer = said("verify", "--head", f"{own['size'] + 1}:{own['root']}", "--config", str(settings), "--json")
    assert (longer.status, longer.value["state"]) == (1, "truncated")
    with sqlite3.connect(settings.parent / "deedbox.db") as database:
        (note,) = database.execute("select note from ledger_checkpoint order by size desc").fetchone()
    database.close()
    (tmp_path / "kept.note").write_text(note)
    noted = said("verify", "--checkpoint", str(tmp_path / "kept.note"), "--config", str(settings), "--json").value
    assert noted["state"] == "valid to a witnessed size"
    stranger = said("verify", str(settings.parent / "deedbox.db"), "--checkpoint", str(tmp_path / "kept.note"))
    assert "(unknown_signer)" in stranger.err


@pytest.mark.parametrize("named", ["entry:1", "event:2"])
def test_what_a_receipt_names_is_proven(settings: Path, tmp_path: Path, named: str) -> None:
    made: dict[str, Any] = said("ledger", "prove", named, "--config", str(settings), "--json").value
    proof = tmp_path / "one.proof"
    proof.write_text(said("ledger", "prove", named, "--config", str(settings)).out)
    assert proof.read_text() == made["proof"]
    held = said("ledger", "check", str(proof), "--leaf", made["leaf"], "--key", made["keys"][0])
    assert held.status == 0
    assert "it stands in the ledger of alpha.test" in held.out
    other = said("ledger", "check", str(proof), "--leaf", "00" * 32, "--key", made["keys"][0], "--json")
    assert (other.status, other.value["error"]) == (1, "proof_fails")


@pytest.mark.parametrize(
    ("named", "code"),
    [("entry:99", "unknown_entry"), ("event:99", "unknown_event"), ("inv_nothing", "unknown_receipt")],
)
def test_what_is_not_there_is_not_proven(settings: Path, named: str, code: str) -> None:
    ended = said("ledger", "prove", named, "--config", str(settings), "--json")
    assert (ended.status, json.loads(ended.out)["error"]) == (1, code)


def test_a_name_that_is_no_receipt(settings: Path) -> None:
    assert said("ledger", "prove", "12", "--config", str(settings)).status == 2


def test_what_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("no ledger\n")
    assert "(unreadable_ledger)" in said("verify", str(tmp_path / "note.txt")).err
    assert "(unreadable_ledger)" in said("verify", str(tmp_path / "nothing")).err
