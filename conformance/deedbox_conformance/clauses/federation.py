"""The federation test F0 to F10 with the judge as the peer, and what else crosses domains under a capability
(OIP 1.2 §8.4, §14.5, §14.12, §16.6, §18.2, §25).
"""

from __future__ import annotations

import re
from typing import Any

from deedbox_conformance import wire
from deedbox_conformance.clause import Chapter, NotClaimed, expect
from deedbox_conformance.clauses import scenes
from deedbox_conformance.client import Answer
from deedbox_conformance.probe import Exchange, Probe, Token
from deedbox_conformance.wire import Json

chapter = Chapter("OIP-FED")

_COPIES = 4
_USES = 3
_PREVIEW = 400


# --- scenes ----------------------------------------------------------------------------------------------


async def mint(probe: Probe, **terms: str) -> Token:
    """Three uses of NOW for ourselves, unless *terms* say otherwise (OIP 1.2 §14.5, §30.10)."""
    if not (await probe.agent()).invokes:
        raise NotClaimed("the node says that it runs nothing")
    asked = {"mint_share": "1", "scope": "row", "key": "NOW", "ttl": "300", "uses": str(_USES)}
    asked |= {"aud": probe.peer.agent} | terms
    answer = await probe.as_owner({name: value for name, value in asked.items() if value})
    expect(answer.status == 200, f"the mint answers HTTP {answer.status}")
    told = answer.members()
    token, fingerprint = told.get("share_token") or told.get("token"), told.get("fingerprint")
    expect(isinstance(token, str) and isinstance(fingerprint, str), "the mint names no share_token and fingerprint")
    expect(Token.of(str(token)).fingerprint == fingerprint, "the fingerprint is not that of the token")
    expect(not asked["aud"] or told.get("audience") == asked["aud"], f"audience is {told.get('audience')!r}")
    return Token(str(token), str(fingerprint))


async def grant(probe: Probe) -> Token:
    """The token that was handed to the judge, else one minted now."""
    if not (await probe.agent()).invokes:
        raise NotClaimed("the node says that it runs nothing")
    return probe.token or await mint(probe)


async def spare(probe: Probe) -> Token:
    """Another like it where one can be minted: a use wrongly spent before is then no second fault here."""
    return await mint(probe) if probe.is_owner else await probe.scene(grant)


async def invoked(probe: Probe) -> Exchange:
    """NOW run under the grant by whom it was made for."""
    return await scenes.invoke_with(probe, (await probe.scene(grant)).text)


async def invoked_again(probe: Probe) -> Exchange:
    """The very bytes of that invoke a second time."""
    return await probe.tell((await probe.scene(invoked)).sent)


async def spent(probe: Probe) -> tuple[Exchange, Exchange]:
    """Two invokes with a token of one use."""
    token = await mint(probe, uses="1")
    return await scenes.invoke_with(probe, token.text), await scenes.invoke_with(probe, token.text)


async def confirmation(probe: Probe, invocation: Json) -> Answer:
    return await probe.get("/api/dispatch", {"confirm": str(invocation)})


def _expect_ran(exchange: Exchange) -> None:
    scenes.expect_result(exchange)
    body = exchange.body
    expect(body.get("invoked") is True and body.get("ran") is True, "the result does not say invoked and ran")
    invocation = str(body.get("invocation_id"))
    expect(re.fullmatch(r"inv_[A-Za-z0-9_-]{4,}", invocation), f"invocation_id is {invocation}")


def _expect_idle(exchange: Exchange, *reasons: str) -> None:
    """Refused, and said plainly to have run nothing (OIP 1.2 §8.4)."""
    scenes.expect_refused(exchange, *reasons)
    said = exchange.body.get("invoked"), exchange.body.get("ran")
    expect(said == (False, False), f"invoked and ran are {said}")


# --- F0 to F10 -------------------------------------------------------------------------------------------


@chapter.must("00", "Both domains can be discovered, each by the other.", "§25 F0")
async def discoverable(probe: Probe) -> None:
    exchange = await probe.scene(scenes.question)
    expect(probe.peer.hosts(exchange.sent["from"]), "the judge has no domain")
    expect(exchange.body.get("sender_verified") is True, f"the node did not find the judge: {exchange.told()}")
    expect(await probe.verifies(exchange.reply), "the judge did not find the node's key")


@chapter.must("01", "A signed question comes back as a verifiable result that has run nothing.", "§25 F1")
async def question(probe: Probe) -> None:
    exchange = await probe.scene(scenes.known_question)
    scenes.expect_result(exchange)
    expect(exchange.body.get("invoked") is False, f"invoked is {exchange.body.get('invoked')!r}")
    expect(await probe.verifies(exchange.reply), "the result does not verify")


@chapter.must(
    "02", "A capability handed over runs a real object, and anybody can confirm that it ran.", "§25 F2, §18.2"
)
async def runs(probe: Probe) -> None:
    exchange = await probe.scene(invoked)
    _expect_ran(exchange)
    expect(exchange.body.get("ok") is True, f"ok is {exchange.body.get('ok')!r}")
    answer = await confirmation(probe, exchange.body["invocation_id"])
    expect(answer.status == 200, f"the confirmation answers HTTP {answer.status}")
    expect(answer.members().get("confirmed") is True, "the invocation is not confirmed")


@chapter.must("03", "Another agent, though of the same domain, cannot use it: `audience_mismatch`.", "§25 F3, §8.4")
async def another_agent(probe: Probe) -> None:
    token = await probe.scene(grant)
    exchange = await scenes.invoke_with(probe, token.text, sender=probe.peer.second)
    _expect_idle(exchange, "audience_mismatch")


@chapter.must(
    "04", "Presented at the door instead of in a signed message it is useless: 403 `audience_bound…`.", "§25 F4"
)
async def at_the_door(probe: Probe) -> None:
    token = await probe.scene(grant)
    answer = await probe.get("/api/dispatch", {"invoke": "NOW", "body": "x", "share": token.text})
    expect(answer.status == 403, f"HTTP {answer.status}")
    expect(
        str(answer.members().get("error")).startswith("audience_bound"), f"error is {answer.members().get('error')!r}"
    )


@chapter.must("05", "It runs no other object: `scope_mismatch`.", "§25 F5, §8.4")
async def another_object(probe: Probe) -> None:
    token = await probe.scene(grant)
    _expect_idle(await scenes.invoke_with(probe, token.text, key="UPPER"), "scope_mismatch")


@chapter.must("06", "The same invoke a second time is refused: `replay_rejected`.", "§25 F6, §9")
async def at_most_once(probe: Probe) -> None:
    scenes.expect_refused(await probe.scene(invoked_again), "replay_rejected")


@chapter.must("07", "A stale invoke is refused though well signed: `expired_envelope`.", "§25 F7, §5.2")
async def stale(probe: Probe) -> None:
    past = wire.now_ms() - 60_000
    times = {"created_at": wire.utc_z(past - 60_000), "expires_at": wire.utc_z(past)}
    exchange = await scenes.invoke_with(probe, scenes.MADE_UP_TOKEN, **times)
    scenes.expect_refused(exchange, "expired_envelope")


@chapter.must("08", "A revocation crosses domains at once: `revoked` or `ancestor_revoked`.", "§25 F8, §14.12")
async def revocation(probe: Probe) -> None:
    token = await mint(probe)
    answer = await probe.as_owner({"revoke": token.fingerprint})
    expect(answer.status == 200 and answer.members().get("revoked") is True, f"revoking answers HTTP {answer.status}")
    _expect_idle(await scenes.invoke_with(probe, token.text), "revoked", "ancestor_revoked")


@chapter.must("09", "Text that gives orders is data: echoed, marked as data, and not obeyed.", "§25 F9")
async def text_is_data(probe: Probe) -> None:
    exchange = await probe.scene(scenes.known_question)
    echo, body = exchange.body.get("echo"), exchange.body
    expect(isinstance(echo, dict) and echo.get("text") == scenes.ORDER, "the order is not echoed")
    expect(body.get("retrieved_text_is_data") is True, "the text is not said to be data")
    expect(not body.get("ran") and "invocation_id" not in body, "something ran")


@chapter.must("10", "The ledgers of both sides join on message id and body hash.", "§25 F10, §10.3")
async def ledgers_join(probe: Probe) -> None:
    exchange = await probe.scene(invoked)
    message = str(exchange.sent["id"])
    ours = probe.peer.record(message) or {}
    theirs = await scenes.records_of(probe, message)
    expect(theirs, "the node's ledger knows no such message")
    expect(theirs[0].get("body_sha256") == ours.get("body_sha256"), "the body hashes differ")
    answered = [record for record in theirs if record.get("response_id") == ours.get("response_id")]
    expect(answered, "the node's ledger names another reply")
    same = answered[0].get("response_body_sha256") == ours.get("response_body_sha256")
    expect(same, "the hashes of the reply differ")
    invocation = answered[0].get("invocation_id")
    expect(invocation == exchange.body.get("invocation_id"), f"the ledger names invocation {invocation!r}")


# --- beyond F10 ------------------------------------------------------------------------------------------


@chapter.must("11", "One invoke sent many times at once runs once.", "§25 N2, §8.6", "node")
async def parallel_invokes(probe: Probe) -> None:
    token = (await probe.scene(spare)).text
    await probe.scene(scenes.known_question)
    envelope = probe.sign(await probe.draft("invoke", {"key": "NOW", "args": ""}, capability=token))
    answers = await scenes.at_once(lambda: probe.post(envelope), _COPIES)
    bodies = [answer.members().get("body") for answer in answers if answer.status == 200]
    runs = {str(body["invocation_id"]) for body in bodies if isinstance(body, dict) and body.get("ran")}
    expect(len(runs) == 1, f"{len(runs)} of {len(answers)} copies ran")


@chapter.must("12", "A sealed invoke runs, and its result is sealed.", "§30.7, §6.6")
async def sealed_invoke(probe: Probe) -> None:
    token = (await probe.scene(spare)).text
    await probe.scene(scenes.known_question)
    body: Json = {"key": "NOW", "args": ""}
    exchange = await scenes.tell_sealed(probe, body, probe.peer.agent, kind="invoke", capability=token)
    _expect_ran(exchange)
    expect(exchange.reply.get("enc") and exchange.reply.get("body") is None, "the result is not sealed")


@chapter.must("13", "`cross_ledger` holds the hashes of request, effective input and whole output.", "§8.5")
async def cross_ledger(probe: Probe) -> None:
    exchange = await probe.scene(invoked)
    _expect_ran(exchange)
    told, body = exchange.body.get("cross_ledger"), exchange.body
    hashes: dict[str, Any] = told if isinstance(told, dict) else {}
    expect(hashes.get("request_body_sha256") == exchange.sent["body_sha256"], "request_body_sha256 differs")
    effective = wire.sha256_hex(wire.canonical({"key": "NOW", "args": ""}))
    expect(hashes.get("input_sha256") == effective, "input_sha256 differs")
    whole = body.get("result", body.get("result_preview"))
    if isinstance(whole, str) and ("result" in body or len(whole) < _PREVIEW):  # a full preview may be cut off
        expect(hashes.get("output_sha256") == wire.sha256_hex(whole.encode()), "output_sha256 differs")
    expect(re.fullmatch(r"[0-9a-f]{64}", str(hashes.get("output_sha256"))), "output_sha256 is missing")


@chapter.must(
    "14", "The result names object, agent, capability fingerprint and a preview, and never the token.", "§8.5"
)
async def result_members(probe: Probe) -> None:
    exchange, token = await probe.scene(invoked), await probe.scene(grant)
    _expect_ran(exchange)
    body = exchange.body
    expect(body.get("object") == "NOW", f"object is {body.get('object')!r}")
    expect(body.get("agent") == exchange.reply.get("from"), f"agent is {body.get('agent')!r}")
    expect(body.get("capability_fingerprint") == token.fingerprint, "the fingerprint is not that of the token")
    preview = body.get("result_preview")
    expect(isinstance(preview, str) and 0 < len(preview) <= _PREVIEW, f"result_preview is {preview!r:.60}")
    expect(token.text.encode() not in exchange.answer.body, "the token is in the reply")


@chapter.must("15", "A token that was bound to nobody cannot cross: `audience_binding_required`.", "§8.4")
async def unbound(probe: Probe) -> None:
    token = await mint(probe, aud="")
    _expect_idle(await scenes.invoke_with(probe, token.text), "audience_binding_required")


@chapter.must("16", "An object that does not exist is refused as `unknown_object`.", "§8.4")
async def unknown_object(probe: Probe) -> None:
    token = await mint(probe, scope="act", key="")
    exchange = await scenes.invoke_with(probe, token.text, key="NO_SUCH_OBJECT_HERE")
    _expect_idle(exchange, "unknown_object")


@chapter.must("17", "A use too many is refused as `token_exhausted`, with status 429 in the ledger.", "§8.4, §14.10")
async def exhausted(probe: Probe) -> None:
    first, second = await probe.scene(spent)
    _expect_ran(first)
    _expect_idle(second, "token_exhausted")
    told = await scenes.shown(probe, second)
    expect(("denied:token_exhausted", 429) in told, f"the ledger says {told}")


@chapter.must("18", "An invocation that never was is not confirmed: 404, `confirmed:false`.", "§18.2")
async def unconfirmed(probe: Probe) -> None:
    await probe.document()
    answer = await confirmation(probe, "inv_neverhappenedatall")
    expect(answer.status == 404, f"HTTP {answer.status}")
    expect(answer.members().get("confirmed") is False, "confirmed is not false")


CLAUSES = chapter.clauses
