"""What an inbox does with each kind of message, with repeats, with sealed bodies and with requests that are too much
(OIP 1.2 §6, §8, §9).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from deedbox_conformance import wire
from deedbox_conformance.clause import Chapter, expect
from deedbox_conformance.clauses import books, scenes
from deedbox_conformance.client import Answer
from deedbox_conformance.probe import Exchange, Probe
from deedbox_conformance.wire import Json

chapter = Chapter("OIP-INBOX")

_COPIES = 5
_LIMIT = 131_072


@chapter.must("01", "`GET` describes the inbox: protocol, agent, the seven kinds and the size limit.", "§8.1")
async def described(probe: Probe) -> None:
    answer = await probe.request("GET", (await probe.agent()).inbox)
    expect(answer.status == 200, f"HTTP {answer.status}")
    told = answer.members()
    expect(told.get("protocol") == wire.PROTOCOL and told.get("method") == "POST", "protocol or method is missing")
    envelope = told.get("envelope")
    kinds = envelope.get("kinds") if isinstance(envelope, dict) else None
    expect(isinstance(kinds, list) and set(kinds) == set(wire.KINDS), f"kinds are {kinds}")


@chapter.must(
    "02", "`OPTIONS` answers 204 and allows GET, POST and every header, for clients in browsers.", "§8.1", "node"
)
async def preflight(probe: Probe) -> None:
    answer = await probe.request("OPTIONS", (await probe.agent()).inbox)
    expect(answer.status == 204, f"HTTP {answer.status}")
    methods = answer.headers.get("access-control-allow-methods", "")
    expect({"GET", "POST"} <= set(methods.replace(" ", "").split(",")), f"methods allowed are {methods!r}")
    expect(answer.headers.get("access-control-allow-headers") == "*", "not every header is allowed")
    expect(answer.headers.get("access-control-allow-origin") == "*", "not every origin is allowed")


@chapter.must("03", "An envelope to an agent not hosted here is answered 404 `unknown_recipient`, naming it.", "§8.3")
async def unknown_recipient(probe: Probe) -> None:
    elsewhere = await probe.draft("query", {"text": "who?"})
    elsewhere["to"] = "node@somewhere-else.example"
    answered = await probe.scene(scenes.misaddressed), (elsewhere, await probe.post(probe.sign(elsewhere)))
    for envelope, answer in answered:
        expect(answer.status == 404, f"HTTP {answer.status} for {envelope['to']}")
        told = answer.members()
        expect(told.get("error") == "unknown_recipient", f"error is {told.get('error')!r}")
        expect(told.get("to") == envelope["to"], f"to is {told.get('to')!r}")


def _expect_too_large(answer: Answer, limit: int) -> None:
    expect(answer.status == 413, f"HTTP {answer.status}")
    told = answer.members()
    expect(told.get("error") == "envelope_too_large", f"error is {told.get('error')!r}")
    expect(told.get("limit") == limit, f"limit is {told.get('limit')!r} instead of {limit}")


async def _limit(probe: Probe) -> int:
    published = (await probe.document()).get("max_request_bytes", _LIMIT)
    return published if isinstance(published, int) else _LIMIT


@chapter.must(
    "04", "A request over the published size is answered 413 `envelope_too_large` with the limit.", "§4.3", "node"
)
async def too_large(probe: Probe) -> None:
    limit = await _limit(probe)
    _expect_too_large(await probe.post(b" " * (limit + 4096)), limit)


@chapter.must("05", "So is one of undeclared length, while it is being read.", "§4.3, fed:F6", "node")
async def too_large_unannounced(probe: Probe) -> None:
    limit = await _limit(probe)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(limit // 16_384 + 2):
            yield b" " * 16_384

    inbox = (await probe.agent()).inbox
    answer = await probe.request("POST", inbox, content=chunks(), headers={"content-type": "application/json"})
    _expect_too_large(answer, limit)


@chapter.must("06", "A compressed request is answered 415 and not inflated.", "§8.7, fed:F11", "node")
async def compressed(probe: Probe) -> None:
    for coding in ("gzip", "br"):
        envelope = probe.sign(await probe.draft("query", {"text": coding}))
        answer = await probe.post(envelope, {"content-encoding": coding})
        expect(answer.status == 415, f"HTTP {answer.status} for {coding}")


@chapter.should("07", "Replies carry `OIP-Verdict` and `OIP-Status`, the status that HTTP must not show.", "§8.2")
async def verdict_headers(probe: Probe) -> None:
    seen = [
        (await probe.scene(scenes.known_question), "echoed", "200"),
        (await probe.scene(scenes.replayed), "replay_rejected", "409"),
        (await probe.scene(scenes.forged), "rejected:bad_signature", "401"),
        (await probe.scene(scenes.proposal), "acknowledged", "200"),
        (await probe.scene(scenes.uncredited), "denied:capability_invalid", "401"),
    ]
    for exchange, verdict, status in seen:
        headers = exchange.answer.headers
        told = headers.get("oip-verdict"), headers.get("oip-status")
        expect(told == (verdict, status), f"the headers say {told} instead of {(verdict, status)}")


# --- kinds -----------------------------------------------------------------------------------------------


@chapter.must("08", "A query is answered by a result that echoes its body and has run nothing.", "§8.5, §30.5")
async def query(probe: Probe) -> None:
    exchange = await probe.scene(scenes.question)
    scenes.expect_result(exchange)
    body = exchange.body
    expect(body.get("echo") == exchange.sent["body"], "the echo is not the body sent")
    expect(body.get("invoked") is False, f"invoked is {body.get('invoked')!r}")
    expect(body.get("retrieved_text_is_data") is True, "the text is not said to be data")
    expect(body.get("encrypted") is False, f"encrypted is {body.get('encrypted')!r}")
    expect(body.get("agent") == exchange.reply.get("from"), f"agent is {body.get('agent')!r}")
    expect(wire.instant_of(body.get("answered_at")), f"answered_at is {body.get('answered_at')!r}")


def _expect_acknowledged(exchange: Exchange, kind: str) -> None:
    expect(exchange.reply.get("kind") == "event", f"{exchange.told()} to a {kind} instead of event")
    expect(exchange.body.get("received") is True, f"a {kind} is not said to be received")
    expect(exchange.body.get("kind") == kind, f"the event names kind {exchange.body.get('kind')!r}")


@chapter.must("09", "A proposal is answered by an event that says `received`, and authorises nothing.", "§8.3, §4.2")
async def propose(probe: Probe) -> None:
    exchange = await probe.scene(scenes.proposal)
    _expect_acknowledged(exchange, "propose")
    expect(not exchange.body.get("invoked"), "something was invoked")


@chapter.must("10", "A result, an event and an error are answered by an event that says `received`.", "§8.3, §4.2")
async def notice(probe: Probe) -> None:
    for exchange in await probe.scene(scenes.notices):
        _expect_acknowledged(exchange, str(exchange.sent["kind"]))


@chapter.must("11", "A cancel is answered by an event that says `received`.", "§8.3, §4.2")
async def cancel(probe: Probe) -> None:
    exchange, _ = await probe.scene(scenes.cancelled)
    _expect_acknowledged(exchange, "cancel")


@chapter.must("12", "An invoke without a capability is refused as `capability_required`; nothing runs.", "§8.4")
async def capability_required(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    exchange = await probe.ask("invoke", {"key": "NOW", "args": ""})
    scenes.expect_refused(exchange, "capability_required")
    said = exchange.body.get("invoked"), exchange.body.get("ran")
    expect(said == (False, False), f"invoked and ran are {said}")


@chapter.must("13", "An invoke with a token this node never made is refused as `capability_invalid`.", "§8.4")
async def capability_invalid(probe: Probe) -> None:
    scenes.expect_refused(await probe.scene(scenes.uncredited), "capability_invalid")


@chapter.must("14", "A `key` or `args` that is no string is refused as `bad_args`, before any gate.", "§8.4", "node")
async def bad_args(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    bodies: list[Json] = [{"key": "NOW", "args": {"zone": "UTC"}}, {"key": 7, "args": ""}]
    for body in bodies:
        scenes.expect_refused(await probe.ask("invoke", body), "bad_args")


# --- repeats ---------------------------------------------------------------------------------------------


@chapter.must("15", "A message sent a second time is refused as `replay_rejected`.", "§8.3, §9")
async def replay(probe: Probe) -> None:
    scenes.expect_refused(await probe.scene(scenes.replayed), "replay_rejected")


@chapter.must(
    "16", "Of one message sent many times at once, one copy is answered and the others are refused.", "§25 N2", "node"
)
async def parallel_replay(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    envelope = probe.sign(await probe.draft("query", {"text": "once"}))
    answers = await scenes.at_once(lambda: probe.post(envelope), _COPIES)
    told = [answer.members() for answer in answers if answer.status == 200]
    results = {str(reply.get("id")) for reply in told if reply.get("kind") == "result"}
    expect(len(results) == 1, f"{len(results)} of {len(answers)} copies were answered")
    for reply in told:
        body = reply.get("body")
        reason = body.get("reason") if isinstance(body, dict) else None
        expect(reply.get("kind") == "result" or reason == "replay_rejected", f"a copy was refused as {reason}")


@chapter.must("17", "A forgery does not spend the id it bears.", "§9, fed:C4")
async def forgery_spends_nothing(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    envelope = await probe.draft("query", {"text": "mine"}, sender=probe.peer.victim)
    await probe.tell(wire.signed(envelope, wire.PrivateKey.generate()))
    scenes.expect_result(await probe.tell(probe.sign(envelope)))


@chapter.must("18", "An id is spent for its sender only: another may use the same.", "§9, §29 W7", "node")
async def id_of_another(probe: Probe) -> None:
    spent = (await probe.scene(scenes.known_question)).sent["id"]
    scenes.expect_result(await probe.ask("query", {"text": "same id"}, sender=probe.peer.second, id=spent))


# --- sealed bodies ---------------------------------------------------------------------------------------


@chapter.must("19", "A sealed query is opened and echoed, and said to have been encrypted.", "§6, §30.7")
async def sealed_query(probe: Probe) -> None:
    exchange = await probe.scene(scenes.sealed_question)
    scenes.expect_result(exchange)
    echo, mark = exchange.body.get("echo"), exchange.body.get("encrypted")
    expect(isinstance(echo, dict) and echo.get("text") == "sealed", "the echo is not the sealed body")
    expect(mark is True, f"encrypted is {mark!r}")


@chapter.must("20", "The reply to a verified sealed message is sealed to the sender's published key.", "§6.6")
async def sealed_reply(probe: Probe) -> None:
    reply = (await probe.scene(scenes.sealed_question)).reply
    enc = reply.get("enc")
    expect(isinstance(enc, dict) and enc.get("alg") == wire.SEAL, "the reply is not sealed")
    expect(reply.get("body") is None, "the reply bears its body in clear as well")
    expect(await probe.verifies(reply), "the sealed reply does not verify")


@chapter.must("21", "A block that does not open with the node's key is refused as `decrypt_failed`.", "§8.3")
async def not_for_us(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    envelope = wire.sealed(await probe.draft("query", {"text": "for another"}), wire.PrivateKey.generate().jwk)
    scenes.expect_refused(await probe.tell(probe.sign(envelope)), "decrypt_failed")


@chapter.must(
    "22", "A sealed block sent again by another sender is refused as `decrypt_refused`.", "§6.7, §25 N4", "node"
)
async def rewrapped(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    exchange = await scenes.tell_sealed(probe, {"text": "says not for whom"}, probe.peer.agent)
    scenes.expect_result(exchange)
    original = exchange.sent  # whose text would not betray that it is another's: only a memory of the block can
    envelope = await probe.draft("query", None, sender=probe.peer.second)
    envelope |= {"enc": original["enc"], "body_sha256": original["body_sha256"]}
    exchange = await probe.tell(probe.sign(envelope))
    scenes.expect_refused(exchange, "decrypt_refused")
    expect("echo" not in exchange.body, "the block was opened")


@chapter.must(
    "23",
    "A sealed query of an unverified sender is refused as `sender_unverifiable`, unopened.",
    "§6.7, §25 N5",
    "node",
)
async def anonymous_sealed(probe: Probe) -> None:
    exchange = await scenes.tell_sealed(probe, {"text": "oracle?"}, probe.stranger())
    scenes.expect_refused(exchange, "sender_unverifiable")
    expect("oracle?" not in json.dumps(exchange.reply), "the block was opened")


@chapter.should("24", "A sealed body whose `_oip` names another message is refused.", "§6.7")
async def sealed_for_another(probe: Probe) -> None:
    await probe.scene(scenes.known_question)
    peer, node = probe.peer.agent, (await probe.agent()).id
    inner: Json = {"text": "moved", "_oip": {"from": peer, "to": node, "id": wire.new_id("msg")}}
    exchange = await scenes.tell_sealed(probe, inner, peer)
    expect(exchange.reply.get("kind") == "error", f"{exchange.told()} instead of error")


CLAUSES = [*chapter.clauses, *books.CLAUSES]
