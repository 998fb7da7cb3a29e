"""Text that others chose and an engine cannot keep: PostgreSQL has no NUL, and a unit with one cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deedbox.ledger.recorded import recorded
from tests.kernel.outbox_scene import a_scene


async def test_a_reply_full_of_nuls_ends_its_delivery(tmp_path: Path, database_url: str) -> None:
    """Else the message is sent again and again, for its end can't be written down."""
    said = {"reason": "no\0pe", "decision": "\0", "invocation_id": "inv_\0x"}
    async with a_scene(tmp_path, database_url) as scene:
        scene.beta.at_inbox(scene.beta.reply("error", said))
        sent = await scene.queue()
        assert await scene.turn() == 1
        assert (await scene.standing(sent)).state == "delivered"
        (told,) = scene.seen
        assert (told.reason, told.decision, told.invocation_id) == ("nope", None, "inv_x")


@pytest.mark.parametrize("written", ["x" * 100_000, "a\0b", "A" * 64])
async def test_what_an_unproven_reply_gives_as_its_hash_is_kept_only_if_it_is_one(
    tmp_path: Path, database_url: str, written: str
) -> None:
    def twisted(members: dict[str, Any]) -> dict[str, Any]:
        return members | {"body_sha256": written}

    async with a_scene(tmp_path, database_url) as scene:
        scene.beta.at_inbox(scene.beta.reply(twist=twisted))
        sent = await scene.queue()
        await scene.turn()
        assert (await scene.standing(sent)).response_verified is False
        assert [told.response_body_sha256 for told in scene.seen] == [None]


async def test_a_run_whose_name_holds_a_nul_never_was(tmp_path: Path, database_url: str) -> None:
    async with a_scene(tmp_path, database_url) as scene:
        assert await scene.node.database.read(recorded, "inv_\0") is None
