"""What the directory's answers mean at the inbox: whose word acts, whose only asks, and who is told to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox import Inbox
from deedbox.envelope.message import compose
from deedbox.envelope.seal import sign_bytes
from deedbox.identity.keys import P256Pair
from tests.kernel.https_peer import plain
from tests.wellknown.scene import BETA, Scene, a_scene, entry, listed

OLD, NEW, FORGER = P256Pair.generate(), P256Pair.generate(), P256Pair.generate()
HERE = "node@alpha.example"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_scene(tmp_path, "inbox") as scene:
        scene.publish(entry(BETA, OLD))
        yield scene


async def ask(scene: Scene, pair: P256Pair, kind: str = "query", sender: str = BETA, address: str = "192.0.2.1") -> Any:
    """Sends an envelope; the kind of its answer and the answer's body, or the code of a plain refusal."""
    ids = scene.node.kernel.ids
    body = {"key": "ECHO", "args": "x"} if kind == "invoke" else {"text": "anybody there?"}
    unsigned = compose(
        ids=ids,
        kind=kind,
        sender=sender,
        recipient=HERE,
        body=body,
        conversation=ids.new("conv"),
        now=scene.clock.now(),
    )
    raw = sign_bytes(unsigned.wire, pair, sender)
    inbox = scene.node.port(Inbox)  # type: ignore[type-abstract]
    reply = await inbox.accept(raw, carrier="https", address=address)
    if not reply.answer:
        return reply.outcome.code, {}
    answered = orjson.loads(reply.answer)
    return answered["kind"], answered["body"]


@pytest.mark.case("oip:N12", "fed:B5")
async def test_a_key_announced_inside_the_cache_window_is_believed_at_once(scene: Scene) -> None:
    assert (await ask(scene, OLD))[1]["sender_verified"] is True
    scene.publish(entry(BETA, NEW, keys=[listed(NEW), listed(OLD)]))
    assert (await ask(scene, NEW))[1]["sender_verified"] is True
    kind, body = await ask(scene, NEW, "invoke")
    assert (kind, body["reason"]) == ("error", "capability_required")  # known by name, which alone permits nothing
    assert (await ask(scene, OLD))[1]["sender_verified"] is True
    assert scene.fetches == 2


@pytest.mark.case("oip:W14")
async def test_a_key_changed_unannounced_asks_but_does_not_act(scene: Scene) -> None:
    await ask(scene, OLD)
    scene.publish(entry(BETA, NEW))
    for _ in range(2):
        kind, body = await ask(scene, NEW, "invoke")
        assert (kind, body["reason"], body["resolve_failure"]) == ("error", "sender_unverifiable", "key_changed")
        assert (await ask(scene, NEW))[1]["sender_verified"] is True


@pytest.mark.case("fed:B6")
async def test_forged_envelopes_cost_one_fetch_and_nobody_elses_turn(scene: Scene) -> None:
    other = "mail@beta.example"
    scene.publish(entry(BETA, OLD), entry(other, NEW))
    await ask(scene, NEW, sender=other)
    answers = await asyncio.gather(*(ask(scene, FORGER) for _ in range(500)))
    assert {body["reason"] for _, body in answers} <= {"bad_signature", "rate_limited"}
    kind, body = await ask(scene, FORGER)
    assert body.get("reason", kind) == "rate_limited"
    assert scene.fetches == 2
    assert (await ask(scene, NEW, sender=other))[1]["sender_verified"] is True  # the same domain, the same address
    assert (await ask(scene, OLD, address="192.0.2.2"))[1]["sender_verified"] is True  # the name that was forged


@pytest.mark.case("fed:B13")
@pytest.mark.parametrize("status", ["404 Not Found", "503 Unavailable"])
async def test_the_answer_says_why_a_sender_has_no_key(scene: Scene, status: str) -> None:
    scene.answer(plain(b"", status=status))
    kind, body = await ask(scene, OLD, "invoke")
    told = (kind, body["reason"], body["resolve_failure"])
    assert told == ("error", "sender_unverifiable", f"well_known_http_{status[:3]}")
    assert body.get("retry_after") == (30 if status == "503 Unavailable" else None)
    kind, body = await ask(scene, OLD)
    assert (kind, body["sender_verified"]) == ("result", False)


@pytest.mark.case("fed:F9")
async def test_an_old_answer_lets_a_peer_ask_while_its_domain_is_down(scene: Scene) -> None:
    await ask(scene, OLD)
    scene.answer(plain(b"", status="502 Bad Gateway"))
    scene.clock.advance(3600)
    assert (await ask(scene, OLD))[1]["sender_verified"] is True
    kind, body = await ask(scene, OLD, "invoke")
    assert (kind, body["reason"], body["resolve_failure"]) == ("error", "sender_unverifiable", "stale_document")
