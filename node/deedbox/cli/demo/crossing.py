"""Steps 1 to 3 of the demo: two nodes find each other, speak, run something under a capability, and refuse the rest."""

from __future__ import annotations

from typing import Any

import orjson

from deedbox.canonical import canonical, sha256_hex
from deedbox.cli.demo.letters import posted, spoiled, written
from deedbox.cli.demo.scene import Player, Scene
from deedbox.ledger.sealing import keep_sealed
from deedbox.ports import Directory

QUESTION = {"text": "Who keeps the minutes?"}
UPPER = {"key": "UPPER", "args": "deeds, not words"}
SPOKEN = "DEEDS, NOT WORDS"
DOOR = "/api/dispatch"


def _short(text: object) -> str:
    return f"{str(text)[:16]}…"


# --- 1: two nodes ------------------------------------------------------------------------------------------------


async def discovery(scene: Scene) -> None:
    """Each finds the other by its domain alone."""
    scene.report.title("1  Two nodes, each with its own keys and database")
    columns = ("domain", "HTTPS on", "agent", "its key", "ledger key")
    scene.report.table(columns, [_row(player) for player in (scene.alpha, scene.beta)])
    for seeker, other in ((scene.alpha, scene.beta), (scene.beta, scene.alpha)):
        kernel = seeker.node.kernel
        directory = seeker.node.port(Directory)  # type: ignore[type-abstract]  # a protocol is the port's name
        record = await directory.resolve(other.agent, kernel.clock.now())
        published = other.node.kernel.agents.pair(other.agent, kernel.clock.now()).public
        found = record.key == published and record.fresh
        detail = f"{record.inbox}, key {_short(record.key.thumbprint)}"
        scene.report.check(f"{seeker.node.domain} finds {other.agent}", found, detail)


def _row(player: Player) -> tuple[str, ...]:
    agent = player.agent
    ledger = player.made.ledger_key.split("+")[1]
    return player.node.domain, f"127.0.0.1:{player.port}", agent, player.made.agents[agent], ledger


# --- 2: a signed query -------------------------------------------------------------------------------------------


async def signed_query(scene: Scene) -> None:
    """Alpha asks beta, and proves the reply."""
    scene.report.title("2  A signed query, and its verified reply")
    sent = await scene.alpha.send(scene.beta.agent, "query", QUESTION)
    reply = sent["response"]
    scene.report.table(
        ("", "message", "from", "body sha256"),
        [
            ("query", sent["message_id"], sent["sender"], sent["body_sha256"]),
            ("reply", reply["id"], reply["from"], reply["body_sha256"]),
        ],
    )
    scene.report.check(
        "signed query delivered", sent["state"] == "delivered", f"{sent['message_id']} to {sent['recipient']}"
    )
    scene.report.check("reply verified", sent["response_verified"], f"{reply['id']}, signed by {reply['from']}")
    echoed = sent["response_body"].get("echo") == QUESTION and sent["response_body"].get("sender_verified") is True
    scene.report.check("reply echoes the question", echoed, "and says that the sender was verified")
    hashed = sha256_hex(canonical(QUESTION)) == sent["body_sha256"]
    hashed &= sha256_hex(canonical(reply["body"])) == reply["body_sha256"]
    scene.report.check("body hashes agree", hashed, f"{_short(sent['body_sha256'])} and {_short(reply['body_sha256'])}")


async def sealed_query(scene: Scene) -> None:
    """The same with both bodies sealed to the reader's key."""
    sent = await scene.alpha.send(scene.beta.agent, "query", QUESTION, encrypt=True)
    reply = sent["response"]
    hidden = sent["sent"]["body"] is None and reply["body"] is None and reply["enc"]["alg"] == "ECDH-P256-A256GCM"
    opened = sent["response_body"].get("echo") == QUESTION and sent["response_body"].get("encrypted") is True
    scene.report.check("sealed query, sealed reply", hidden and opened, "opened by its readers, closed to the carrier")


# --- 3: a capability across domains ------------------------------------------------------------------------------


async def without_capability(scene: Scene) -> None:
    """A signature alone runs nothing."""
    scene.report.title("3  A capability of alpha's, for beta's agent")
    await keep_sealed(scene.beta.node, whole=True)
    sent = await scene.alpha.send(scene.beta.agent, "invoke", UPPER)
    scene.report.refused("identity is not authority", sent["response_body"].get("reason"), "capability_required")
    scene.kept[scene.beta.node.domain] = sent["response"]["receipt"]["checkpoint"] or ""


async def minted(scene: Scene) -> None:
    """Alpha mints for beta: one use, and a spare for what will be refused."""
    told = await _mint(scene, 1)
    scene.token = told["share_token"]
    bound = told["audience"] == scene.beta.agent and told["contract_hash"] is not None
    detail = f"{told['fingerprint']}, {told['scope']}, {told['max_uses']} use, for {told['audience']}"
    scene.report.check("capability minted and bound", bound, detail)
    spare = await _mint(scene, 5)
    scene.spare, scene.spare_fingerprint = spare["share_token"], spare["fingerprint"]
    await keep_sealed(scene.alpha.node, whole=True)


async def _mint(scene: Scene, uses: int) -> dict[str, Any]:
    told = await scene.alpha.ask("CAPABILITY_MINT", scope="row:UPPER", aud=scene.beta.agent, uses=uses, ttl=600)
    found: dict[str, Any] = told["value"]
    return found


async def invoked(scene: Scene) -> None:
    """Beta runs alpha's object, and alpha confirms it to anybody who asks."""
    sent = await scene.beta.send(scene.alpha.agent, "invoke", UPPER, capability=scene.token)
    body = sent["response_body"]
    ran = sent["response_verified"] and body.get("ran") is True and body.get("result") == SPOKEN
    scene.report.check("capability invoked across domains", ran, f"{body.get('invocation_id')}: {body.get('result')}")
    scene.receipt = sent["response"]["receipt"]
    scene.kept[scene.alpha.node.domain] = scene.receipt["checkpoint"] or ""
    path = f"{DOOR}?confirm={body['invocation_id']}"
    found = orjson.loads((await scene.beta.node.kernel.outgoing.get_json(scene.alpha.node.domain, path)).body)
    scene.report.check("alpha confirms the run", found.get("confirmed") is True, f"{scene.alpha.node.domain}{path}")


async def budget_spent(scene: Scene) -> None:
    sent = await scene.beta.send(scene.alpha.agent, "invoke", UPPER, capability=scene.token)
    scene.report.refused("budget spent", sent["response_body"].get("reason"), "token_exhausted")


async def forwarded(scene: Scene) -> None:
    """Another agent of beta's got hold of the token."""
    mallory = f"mallory@{scene.beta.node.domain}"
    sent = await scene.beta.send(scene.alpha.agent, "invoke", UPPER, capability=scene.spare, sender=mallory)
    scene.report.refused("forwarded token", sent["response_body"].get("reason"), "audience_mismatch", f"to {mallory}")


async def wrong_object(scene: Scene) -> None:
    body = {"key": "SHA256_LOWER", "args": "x"}
    sent = await scene.beta.send(scene.alpha.agent, "invoke", body, capability=scene.spare)
    scene.report.refused("another object", sent["response_body"].get("reason"), "scope_mismatch", body["key"])


async def at_the_door(scene: Scene) -> None:
    """A token bound to an agent opens nothing to whoever merely holds it."""
    asked = orjson.dumps({"key": "UPPER", "body": "x"})
    bearer = {"Authorization": f"Bearer {scene.spare}"}
    answer = await scene.beta.node.kernel.outgoing.post(scene.alpha.node.domain, 443, DOOR, asked, headers=bearer)
    found = orjson.loads(answer.body)
    wanted = f"audience_bound:{scene.beta.agent}"
    scene.report.refused("bound token at the door", found.get("error"), wanted, f"HTTP {answer.status}")


# --- 3: what is refused before anything runs ---------------------------------------------------------------------


async def replayed(scene: Scene) -> None:
    """The very bytes that ran once are sent again."""
    letter = written(scene.beta, scene.alpha.agent, "invoke", UPPER, capability=scene.spare)
    first = await posted(scene.beta, letter)
    again = await posted(scene.beta, letter)
    once = first.body.get("ran") is True and again.body.get("original", {}).get("invocation_id")
    detail = f"the first ran as {first.body.get('invocation_id')}"
    scene.report.refused("replayed envelope", again.reason if once else None, "replay_rejected", detail)


async def stale(scene: Scene) -> None:
    letter = written(scene.beta, scene.alpha.agent, "query", QUESTION, age=600_000)
    reason = (await posted(scene.beta, letter)).reason
    scene.report.refused("stale envelope", reason, "expired_envelope", "written ten minutes ago")


async def tampered(scene: Scene) -> None:
    """Something between signer and recipient changes a member."""
    letter = written(scene.beta, scene.alpha.agent, "query", QUESTION)
    body = await posted(scene.beta, spoiled(letter, body={"text": "Who keeps the money?"}))
    scene.report.refused("tampered body", body.reason, "body_hash_mismatch")
    letter = written(scene.beta, scene.alpha.agent, "query", QUESTION)
    other = await posted(scene.beta, spoiled(letter, conversation="another one"))
    scene.report.refused("tampered member", other.reason, "bad_signature")


async def revoked(scene: Scene) -> None:
    """Alpha changes its mind; the next use fails, wherever the token is."""
    told = await scene.alpha.ask("CAPABILITY_REVOKE", fingerprint=scene.spare_fingerprint)
    sent = await scene.beta.send(scene.alpha.agent, "invoke", UPPER, capability=scene.spare)
    reason = sent["response_body"].get("reason") if told["value"]["revoked"] else None
    scene.report.refused("revocation crosses domains", reason, "revoked", scene.spare_fingerprint)


STEPS = (
    *(discovery, signed_query, sealed_query),
    *(without_capability, minted, invoked, budget_spent, forwarded, wrong_object, at_the_door),
    *(replayed, stale, tampered, revoked),
)
