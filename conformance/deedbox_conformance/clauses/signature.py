"""Whether a node believes exactly what is signed, and signs its own answers (OIP 1.2 §5, §8.5, §30.3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from deedbox_conformance import wire
from deedbox_conformance.clause import Chapter, expect
from deedbox_conformance.clauses import scenes
from deedbox_conformance.probe import Exchange, Probe
from deedbox_conformance.wire import Envelope, Json

chapter = Chapter("OIP-SIG")
replies = Chapter("OIP-REPLY")

_AWKWARD: Json = {
    "numbers": [0, -0.0, 10.0, 1e-7, 0.00001, 0.1, 1e15, 123.456],
    "\ufb33": "sorts after the emoji by UTF-16 code unit",
    "\U0001f600": "sorts before",
    "text": 'é\u2028\u2029\u007f\u0001"\\/\t',
    "Text": [],
    "": {},
}


def _value(envelope: Envelope) -> bytes:
    signature = envelope["signature"]
    return wire.unb64url(signature["value"] if isinstance(signature, dict) else None)


def _resigned(envelope: Envelope, value: bytes) -> Envelope:
    return envelope | {"signature": {"alg": "ES256", "kid": envelope["from"], "value": wire.b64url(value)}}


async def _as_victim(probe: Probe, change: Callable[[Envelope], Envelope], **members: Any) -> Exchange:
    """A query well signed by the victim, then changed."""
    await probe.scene(scenes.known_question)
    envelope = await probe.draft("query", {"text": "mine"}, sender=probe.peer.victim, **members)
    return await probe.tell(change(probe.sign(envelope)))


@chapter.must("01", "Spacing, order of members and further members do not touch a signature.", "§4.1, §5.3")
async def neutral_transport(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    envelope = probe.sign(await probe.draft("query", {"text": "spaced"}, note={"extra": [1, None]}))
    text = json.dumps(dict(reversed(envelope.items())), indent=3)
    told = (await probe.post(text.encode())).members()
    body = told.get("body")
    expect(isinstance(body, dict) and body.get("sender_verified") is True, f"the answer was {told.get('kind')}: {body}")


@chapter.must("02", "Awkward numbers, names and characters have the canonical form of RFC 8785 on both sides.", "§2.1")
async def canonical_agreement(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    exchange = await probe.ask("query", _AWKWARD)
    expect(exchange.body.get("sender_verified") is True, exchange.told())
    echo = exchange.body.get("echo")
    expect(isinstance(echo, dict) and wire.canonical(echo) == wire.canonical(_AWKWARD), "the echo is not what was sent")
    expect(exchange.reply.get("body_sha256") == wire.body_hash(exchange.reply), "the reply's own hash differs")


@chapter.must("03", "An expired envelope is refused as `expired_envelope`, before its signature is judged.", "§5.2")
async def expired(probe: Probe) -> None:
    past = wire.now_ms() - 120_000
    times = {"created_at": wire.utc_z(past - 60_000), "expires_at": wire.utc_z(past)}
    for change in (lambda envelope: envelope, lambda envelope: envelope | {"conversation": "conv_changed"}):
        scenes.expect_refused(await _as_victim(probe, change, **times), "expired_envelope")


@chapter.must("04", "A body that was changed is refused as `body_hash_mismatch`.", "§5.2")
async def changed_body(probe: Probe) -> None:
    changed = await _as_victim(probe, lambda envelope: envelope | {"body": {"text": "yours"}})
    scenes.expect_refused(changed, "body_hash_mismatch")


@chapter.must("05", "No signature, another algorithm or an empty value is refused as `missing_signature`.", "§5.2")
async def unsigned(probe: Probe) -> None:
    none: Json = {"alg": "none", "kid": probe.peer.victim, "value": ""}
    scenes.expect_refused(await _as_victim(probe, _bare), "missing_signature")
    exchange = await _as_victim(probe, lambda envelope: envelope | {"signature": none})
    scenes.expect_refused(exchange, "missing_signature")


def _bare(envelope: Envelope) -> Envelope:
    return {name: value for name, value in envelope.items() if name != "signature"}


@chapter.must("06", "A signature by another key is refused as `bad_signature`.", "§5.2")
async def foreign_key(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    scenes.expect_refused(await probe.scene(scenes.forged), "bad_signature")


@chapter.must("07", "Every member is under the signature: one added or changed is refused as `bad_signature`.", "§5.1")
async def every_member(probe: Probe) -> None:
    for change in ({"priority": "high"}, {"capability": scenes.MADE_UP_TOKEN}):
        exchange = await _as_victim(probe, lambda envelope, change=change: envelope | change)  # type: ignore[misc]
        scenes.expect_refused(exchange, "bad_signature")


@chapter.must("08", "A signature that is not 64 bytes r‖s, such as DER, is refused as `bad_signature`.", "§3.3")
async def der(probe: Probe) -> None:
    def encode(envelope: Envelope) -> Envelope:
        raw = _value(envelope)
        numbers = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
        return _resigned(envelope, numbers)

    scenes.expect_refused(await _as_victim(probe, encode), "bad_signature")


@chapter.must("09", "Both forms of s are accepted, since common signers make either.", "§3.3, fed:B1")
async def either_s(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    for high in (True, False):
        envelope = probe.sign(await probe.draft("query", {"high": high}))
        raw = _value(envelope)
        s = int.from_bytes(raw[32:])
        chosen = max(s, wire.P256_ORDER - s) if high else min(s, wire.P256_ORDER - s)
        exchange = await probe.tell(_resigned(envelope, raw[:32] + chosen.to_bytes(32)))
        expect(
            exchange.body.get("sender_verified") is True, f"with the {'high' if high else 'low'} s {exchange.told()}"
        )


@chapter.must(
    "10", "A `kid` of somebody else is refused as `key_not_of_sender`, though the key is right.", "§5.1", "node"
)
async def foreign_kid(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    envelope = await probe.draft("query", {"text": "whose?"}, sender=probe.peer.victim)
    other = probe.peer.agent
    exchange = await probe.tell(wire.signed(envelope, probe.peer.key(other), kid=other))
    scenes.expect_refused(exchange, "key_not_of_sender")


@chapter.must(
    "11", "Agent ids are compared without regard to case, and the sender's spelling is echoed.", "§3.1", "node"
)
async def spelling(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    shouted = probe.peer.agent.upper()
    envelope = await probe.draft("query", {"text": "loud"}, sender=shouted)
    envelope["to"] = str(envelope["to"]).upper()
    exchange = await probe.tell(probe.sign(envelope))
    expect(exchange.body.get("sender_verified") is True, exchange.told())
    expect(exchange.reply.get("to") == shouted, f"the reply is to {exchange.reply.get('to')}")


@chapter.must("12", "A query of an agent nobody publishes is answered, with `sender_verified:false`.", "§8.3, §30.9")
async def unverified_query(probe: Probe) -> None:
    exchange = await probe.ask("query", {"text": "who am I?"}, sender=probe.stranger())
    scenes.expect_result(exchange)
    expect(exchange.body.get("sender_verified") is False, "the sender is said to be verified")


@chapter.must("13", "Anything else of such an agent is refused as `sender_unverifiable`, saying why.", "§8.3, §7.3")
async def unverified_event(probe: Probe) -> None:
    exchange = await probe.ask("event", {"state": "idle"}, sender=probe.stranger())
    scenes.expect_refused(exchange, "sender_unverifiable")
    why = exchange.body.get("resolve_failure")
    expect(isinstance(why, str) and why, "there is no resolve_failure")
    known = not str(exchange.sent["from"]).endswith(".invalid")
    expect(not known or why == "agent_not_published", f"resolve_failure is {why!r}")


# --- the replies of the node -----------------------------------------------------------------------------


@replies.must("01", "A reply bears an ES256 signature that the published key of its `from` verifies.", "§8.5, §30.3")
async def reply_signature(probe: Probe) -> None:
    exchange = await probe.scene(scenes.question)
    signature = exchange.reply.get("signature")
    told = signature if isinstance(signature, dict) else {}
    expect(told.get("alg") == "ES256", f"alg is {told.get('alg')!r}")
    expect(await probe.verifies(exchange.reply), "the signature does not verify with the published key")
    expect(str(told.get("kid")).lower() == str(exchange.reply.get("from")).lower(), f"kid is {told.get('kid')!r}")


@replies.must("02", "A reply's `body_sha256` is the hash of its body.", "§4.1, §30.3")
async def reply_hash(probe: Probe) -> None:
    reply = (await probe.scene(scenes.question)).reply
    expect(reply.get("body_sha256") == wire.body_hash(reply), "body_sha256 is not the hash of the body")


@replies.must(
    "03", "A reply is from the agent addressed, to the sender, about that message, in its thread.", "§8.5, §12.1"
)
async def reply_address(probe: Probe) -> None:
    exchange = await probe.scene(scenes.question)
    sent, reply = exchange.sent, exchange.reply
    expected = {"from": sent["to"], "to": sent["from"], "in_reply_to": sent["id"], "conversation": sent["conversation"]}
    for name, value in expected.items():
        expect(reply.get(name) == value, f"{name} is {reply.get(name)!r} instead of {value!r}")


@replies.must(
    "04", "A reply has UTC-Z times, was not made in the future and lives 30 s to 905 s from now.", "§8.5, §30.3"
)
async def reply_times(probe: Probe) -> None:
    exchange = await probe.scene(scenes.question)
    created, expires = (wire.instant_of(exchange.reply.get(name)) for name in ("created_at", "expires_at"))
    expect(created is not None and expires is not None, "a time is not of the form YYYY-MM-DDTHH:MM:SS.mmmZ")
    sent = wire.instant_of(exchange.sent["created_at"]) or 0
    ahead, life = ((created or 0) - sent) / 1000, ((expires or 0) - sent) / 1000
    expect(ahead <= 120, f"it was made {ahead:.0f} s after the question")
    expect(30 <= life <= 905 + 120, f"it expires {life:.0f} s after the question")


@replies.must("05", "A reply has a fresh, well-formed id and no capability.", "§1.4, §8.5")
async def reply_id(probe: Probe) -> None:
    exchange, again = await probe.scene(scenes.question), await probe.scene(scenes.another_question)
    names = [str(one.reply.get("id")) for one in (exchange, again)]
    expect(all(re.fullmatch(r"msg_[A-Za-z0-9_-]{8,}", name) for name in names), f"ids are {names}")
    expect(len({*names, str(exchange.sent["id"]), str(again.sent["id"])}) == 4, "an id was used twice")
    expect(exchange.reply.get("capability") is None, "a capability came along")


@replies.must("06", "A refusal is HTTP 200 with a signed `error` of the same form.", "§8.2, §8.5")
async def signed_refusal(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    exchange = await probe.scene(scenes.forged)
    sent, reply = exchange.sent, exchange.reply
    expect(reply.get("kind") == "error", exchange.told())
    expect(await probe.verifies(reply), "the refusal is not signed by the node")
    expect(reply.get("in_reply_to") == sent["id"] and reply.get("to") == sent["from"], "it answers something else")
    expect(isinstance(exchange.body.get("note"), str), "the refusal has no note")


CLAUSES = [*chapter.clauses, *replies.clauses]
