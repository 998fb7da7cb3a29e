"""Serving as an operator does it: one line when ready, the owner's socket beside it, a graceful end."""

from __future__ import annotations

import signal
import socket
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import said, served

Founding = Callable[..., Path]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_stopped(found_node: Founding, how: int) -> None:
    settings = found_node()
    folder = settings.parent
    with served("--config", str(settings), folder=folder) as node:
        assert node.ready.startswith("ready: alpha.test on https://127.0.0.1:")
        control = folder / "control.sock"
        assert stat.S_IMODE(control.stat().st_mode) == 0o600
        assert node.stop(how) == 0
        assert not control.exists()
    assert said("verify", str(folder / "deedbox.db")).status == 0


def test_a_command_beside_it_goes_down_the_same_road(found_node: Founding) -> None:
    settings = found_node()
    with served("--config", str(settings), folder=settings.parent):
        minted = said("mint", "row:UPPER", "--config", str(settings), "--json")
        assert minted.status == 0, minted.err
        assert minted.value["receipt"]["seq"] == 1
        checked = said("config", "check", "--config", str(settings), "--json")
        assert checked.status == 0
        assert [each["ok"] for each in checked.value["checks"] if each["name"] == "assembly"] == [None]
        upgraded = said("init", "--upgrade", "--folder", str(settings.parent))
        assert "database_in_use" in upgraded.err
    with sqlite3.connect(settings.parent / "deedbox.db") as database:
        payloads = [row[0] for row in database.execute("select payload from ledger_payload")]
    database.close()
    assert any(b'"surface":"control"' in bytes(payload) for payload in payloads)
    assert not any(minted.value["value"]["share_token"].encode() in bytes(payload) for payload in payloads)


def test_without_settings_it_is_a_node_to_try(tmp_path: Path) -> None:
    with served(folder=tmp_path) as node:
        assert node.ready.startswith("ready: try.test on https://127.0.0.1:")
        assert len(list(tmp_path.glob("deedbox-try-*"))) == 1
        assert node.stop() == 0
    assert "owner key ok_" in (tmp_path / "serve.err").read_text()
    assert list(tmp_path.glob("deedbox-try-*")) == []


@pytest.mark.parametrize(
    ("listen", "code"), [("{taken}", "address_in_use"), ("192.0.2.1:0", "cannot_listen"), ("8470", "HOST:PORT")]
)
def test_an_address_it_cannot_have(found_node: Founding, listen: str, code: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = "{}:{}".format(*other.getsockname())
        ended = said("serve", "--config", str(found_node()), "--listen", listen.format(taken=taken))
    assert ended.status in (1, 2)
    assert code in ended.err


def test_it_does_not_start_behind_its_schema(found_node: Founding) -> None:
    settings = found_node()
    with sqlite3.connect(settings.parent / "deedbox.db") as database:
        database.execute("update kernel_schema_version set version_num = '0000'")
    database.close()
    ended = said("serve", "--config", str(settings))
    assert ended.status == 1
    assert "schema_behind" in ended.err
    assert "deedbox init --upgrade" in ended.err


def test_two_cannot_serve_one_database(found_node: Founding) -> None:
    settings = found_node()
    with served("--config", str(settings), folder=settings.parent):
        ended = said("serve", "--config", str(settings))
        assert ended.status == 1
        assert "database_in_use" in ended.err
