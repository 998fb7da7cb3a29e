"""What whoever owns a name, and so any number of names below it, can make a node fetch and keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from deedbox.identity.keys import P256Pair
from deedbox_wellknown import copies
from deedbox_wellknown.directory import PATH
from tests.kernel.https_peer import hang_up, redirect
from tests.wellknown.scene import BETA, NAMES, Scene, a_scene, entry

OLD = P256Pair.generate()
GAMMA = "node@gamma.example"


async def kept(scene: Scene) -> list[str]:
    rows = await scene.node.kernel.database.read(
        lambda reader: reader.all("select domain from wellknown_peer order by domain")
    )
    return [row.domain for row in rows]


async def test_a_domain_that_said_nothing_is_as_new_as_one_never_asked(tmp_path: Path) -> None:
    async with a_scene(tmp_path, new_domains="1/min") as scene:
        scene.answer(hang_up())
        await scene.failure()
        scene.clock.advance(61)
        await scene.failure()
        reason = "well_known_unreachable:too many domains are new to this node"
        assert await scene.failure(GAMMA) == (reason, 30)
        assert scene.names.asked == ["beta.example", "beta.example"]


async def test_redirects_of_others_do_not_use_up_what_a_domain_is_asked(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        way = scene.node.kernel.outgoing
        scene.peer.scripts["/there"] = redirect(f"https://gamma.example{PATH}")
        scene.publish(entry(GAMMA, OLD))
        for _ in range(30):
            assert (await way.get_json("beta.example", "/there")).final_host == "gamma.example"
        assert (await scene.resolve(GAMMA)).key == OLD.public


async def test_of_too_much_the_largest_documents_are_forgotten(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_scene(tmp_path, database=database_url) as scene:
        scene.publish(entry(BETA, OLD))
        await scene.resolve()
        scene.publish(entry(GAMMA, OLD), filler="x" * 100_000)
        await scene.resolve(GAMMA)
        prune = scene.node.jobs["wellknown_prune"].run
        await prune(scene.node, {})
        assert await kept(scene) == list(NAMES)
        monkeypatch.setattr(copies, "KEPT", 100_000)
        await prune(scene.node, {})
        assert await kept(scene) == ["beta.example"]


async def test_what_is_too_old_to_serve_is_forgotten(tmp_path: Path, database_url: str) -> None:
    async with a_scene(tmp_path, database=database_url) as scene:
        scene.publish(entry(BETA, OLD))
        await scene.resolve()
        scene.clock.advance(3600)
        scene.answer(hang_up())
        await scene.failure(GAMMA)
        prune = scene.node.jobs["wellknown_prune"].run
        for hours, left in ((46, list(NAMES)), (1.5, ["gamma.example"]), (1, [])):
            scene.clock.advance(3600 * hours)
            await prune(scene.node, {})
            assert await kept(scene) == left
