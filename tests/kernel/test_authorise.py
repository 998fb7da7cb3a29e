"""Who may: what is public, what the owner's key opens and what it does not, and that silence is a no."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deedbox import Allow, Anonymous, Deny, Effect, Hold, Node, OwnerKey
from deedbox.govern.authorise import SILENCE, combine
from deedbox.govern.owner import FILE, LocalOwner, make_owner_key
from deedbox.identity.principal import Internal
from deedbox.testing import FrozenClock
from tests.kernel.bare_node import a_bare_node
from tests.kernel.road_scene import Badge, Judge, an_object, ask, toys, written

YES, WAIT, NO = Allow(policy="yes"), Hold("wait", policy="wait"), Deny("no", policy="no")


@pytest.fixture
async def node(tmp_path: Path, database_url: str) -> AsyncIterator[Node]:
    plugin = toys(
        an_object("RUN"),
        an_object("RUN_PUBLIC", public=True),
        an_object("SHOW", effect=Effect.DISCLOSURE),
        an_object("SHOW_PUBLIC", effect=Effect.DISCLOSURE, public=True),
        an_object("NO_RUN"),
        policies=[Judge("denies", lambda operation: NO if operation.intent.object_key.startswith("NO_") else None)],
    )
    async with a_bare_node(tmp_path, plugin, database=database_url, clock=FrozenClock()) as made:
        yield made


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((), SILENCE),
        ((None, None), SILENCE),
        ((YES,), YES),
        ((None, YES), YES),
        ((YES, WAIT), WAIT),
        ((WAIT, NO, YES), NO),
        ((Deny("b", policy="b"), Deny("a", policy="a")), Deny("a", policy="a")),
        ((Allow(policy="b"), Allow(policy="a")), Allow(policy="a")),
    ],
)
def test_deny_beats_hold_beats_allow_and_silence_denies(verdicts: tuple[Any, ...], expected: Any) -> None:
    assert combine(verdicts) == expected
    assert combine(reversed(verdicts)) == expected


ASKED = {
    "anonymous": (Anonymous(), {"SHOW_PUBLIC"}),
    "a peer": (Badge("alice"), {"SHOW_PUBLIC"}),
    "an unproven peer": (Badge("alice", recognised=False), {"SHOW_PUBLIC"}),
    "the owner here": (LocalOwner(os.geteuid()), {"RUN", "RUN_PUBLIC", "SHOW", "SHOW_PUBLIC"}),
    "the node itself": (Internal("entry:1"), {"SHOW_PUBLIC"}),
    "another user": (LocalOwner(os.geteuid() + 12_345), set()),
}


@pytest.mark.parametrize("who", ASKED)
async def test_what_may_be_asked_without_any_other_policy(node: Node, who: str) -> None:
    credential, allowed = ASKED[who]
    keys = ("RUN", "RUN_PUBLIC", "SHOW", "SHOW_PUBLIC", "NO_RUN")
    assert {key for key in keys if (await ask(node, key, credential=credential)).outcome.ok} == allowed


async def test_silence_denies(node: Node) -> None:
    outcome = (await ask(node, "RUN")).outcome
    assert (outcome.code, outcome.status) == ("not_allowed", 403)


async def test_the_owner_is_who_shows_the_key_whose_hash_is_kept(node: Node) -> None:
    keys = node.kernel.settings.node.keys
    first = make_owner_key(keys, os.urandom)
    assert (await ask(node, "RUN", credential=OwnerKey(first))).outcome.ok
    second = make_owner_key(keys, os.urandom)
    told = [(await ask(node, "RUN", credential=OwnerKey(shown))).outcome for shown in (first, second, "", first[:-1])]
    assert [(outcome.ok, outcome.status) for outcome in told] == [(False, 401), (True, 200), (False, 401), (False, 401)]
    (keys / FILE).unlink()
    for shown in (second, ""):
        assert (await ask(node, "RUN", credential=OwnerKey(shown))).outcome.code == "unauthorized"


async def test_the_owner_key_is_in_no_file_in_no_entry_and_in_no_print(node: Node, tmp_path: Path) -> None:
    keys = node.kernel.settings.node.keys
    secret = make_owner_key(keys, os.urandom)
    await ask(node, "RUN", credential=OwnerKey(secret))
    await ask(node, "RUN", credential=OwnerKey(secret + "x"))
    assert secret not in repr(OwnerKey(secret))
    assert secret not in str(await written(node))
    assert stat.S_IMODE((keys / FILE).stat().st_mode) == 0o600
    assert await asyncio.to_thread(files_with, secret.encode(), tmp_path) == []


def files_with(found: bytes, folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and found in file.read_bytes()]


async def test_the_key_is_presented_in_its_header_only(node: Node) -> None:
    assert node.present({"x-terminal-key": "ok_1"}) == OwnerKey("ok_1")
    assert node.present({"authorization": "Bearer ok_1", "cookie": "x-terminal-key=ok_1"}) == Anonymous()
