"""What an inbox must not even look up the sender for: broken JSON, broken envelopes (OIP 1.2 §2.4, §4.3, §8.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deedbox_conformance import wire
from deedbox_conformance.clause import Chapter, Check, Origin, expect
from deedbox_conformance.client import Answer
from deedbox_conformance.probe import Probe
from deedbox_conformance.wire import Envelope, Json

chapter = Chapter("OIP-SHAPE")
Fault = Callable[[Envelope], Json]

_LONGEST_LIFE_SECONDS = 905


def _without(name: str) -> Fault:
    return lambda envelope: {member: value for member, value in envelope.items() if member != name}


def _with(**members: Json) -> Fault:
    return lambda envelope: envelope | members


def _times(created: int, expires: int) -> Fault:
    """Seconds from now."""

    def shift(envelope: Envelope) -> Json:
        now = wire.now_ms()
        times = {"created_at": wire.utc_z(now + created * 1000), "expires_at": wire.utc_z(now + expires * 1000)}
        return envelope | times

    return shift


def _body(body: Json) -> Fault:
    def put(envelope: Envelope) -> Json:
        changed = envelope | {"body": body}
        return changed | {"body_sha256": wire.body_hash(changed)}

    return put


Row = tuple[str, str, str, Origin, Sequence[Fault]]
ROWS: Sequence[Row] = (
    ("01", "not_an_object", "a value that is no object", "wire", (lambda _: None, lambda _: "envelope")),
    ("02", "wrong_protocol", "another `protocol`", "wire", (_with(protocol="oip-message/2"), _without("protocol"))),
    ("03", "bad_id", "an `id` outside its grammar", "wire", (_with(id="msg_short"), _with(id="msg_AAECAwQF+gcICQoL"))),
    ("04", "bad_kind", "a `kind` beyond the seven", "wire", (_with(kind="accept"),)),
    ("05", "bad_from", "a `from` without a domain", "wire", (_with(**{"from": "judge"}), _with(**{"from": "@a.test"}))),
    ("06", "bad_to", "a `to` without a domain", "wire", (_with(to="node"),)),
    ("07", "missing_times", "a missing time", "wire", (_without("expires_at"), _with(created_at=""))),
    ("08", "missing_body_hash", "a `body_sha256` that is no string", "wire", (_with(body_sha256=7),)),
    ("09", "body_too_large", "a body over 65536 canonical bytes", "wire", (_body({"text": "x" * 65536}),)),
    ("10", "bad_times", "a time that cannot be read", "node", (_with(expires_at="tomorrow"),)),
    ("11", "ttl_too_long", "a life beyond 905 s", "node", (_times(0, _LONGEST_LIFE_SECONDS + 60),)),
    ("12", "created_in_future", "a creation over 120 s ahead", "node", (_times(200, 400),)),
    ("13", "conversation_too_long", "a `conversation` over 200 characters", "node", (_with(conversation="c" * 201),)),
    ("14", "capability_too_long", "a `capability` over 2048 characters", "node", (_with(capability="s" * 2049),)),
)


async def _broken(probe: Probe, fault: Fault) -> Answer:
    broken = fault(await probe.draft("query", {"text": "shape"}))
    return await probe.post(probe.sign(broken) if isinstance(broken, dict) and "from" in broken else broken)


def _expect_malformed(answer: Answer, reason: str) -> None:
    expect(answer.status == 400, f"HTTP {answer.status} instead of 400 {reason}")
    told = answer.members()
    expect(told.get("error") == "malformed_envelope", f"error is {told.get('error')!r}")
    expect(told.get("reason") == reason, f"reason is {told.get('reason')!r} instead of {reason}")


def _refuses(reason: str, faults: Sequence[Fault]) -> Check:
    async def check(probe: Probe) -> None:
        for fault in faults:
            _expect_malformed(await _broken(probe, fault), reason)

    return check


for number, reason, what, origin, faults in ROWS:
    sentence = f"Answered 400 `malformed_envelope`, reason `{reason}`: {what}."
    chapter.must(number, sentence, "§4.3, §8.3", origin)(_refuses(reason, faults))


@chapter.must("15", "Of several faults of shape, the first in the order of the table is named.", "§4.3")
async def order(probe: Probe) -> None:
    pairs: list[tuple[str, Fault]] = [
        ("wrong_protocol", _with(protocol="smtp", id="msg_short", kind="accept")),
        ("bad_id", _with(id="msg_short", kind="accept", body_sha256=7)),
        ("bad_kind", _with(kind="accept", to="node", expires_at="")),
        ("missing_times", _with(expires_at="", body_sha256=7)),
    ]
    for reason, fault in pairs:
        _expect_malformed(await _broken(probe, fault), reason)


@chapter.must("16", "A request that is not JSON is answered 400 `invalid_json`.", "§8.3")
async def invalid_json(probe: Probe) -> None:
    for content in (b"{", b"protocol=oip-message/1", b""):
        answer = await probe.post(content)
        expect(answer.status == 400, f"HTTP {answer.status} for {content!r}")
        expect(answer.members().get("error") == "invalid_json", f"error is {answer.members().get('error')!r}")


@chapter.must(
    "17",
    "Duplicate names and numbers that parsers read differently are refused as `non_canonical_json`.",
    "§2.4",
    "node",
)
async def non_canonical(probe: Probe) -> None:
    envelope = probe.sign(await probe.draft("query", {"amount": 1}))
    text = wire.canonical(envelope)
    for said in (
        b'"amount":1,"amount":1',
        b'"amount":1,"\\u0061mount":1',
        b'"amount":9007199254740993',
        b'"amount":1e400',
    ):
        _expect_malformed(await probe.post(text.replace(b'"amount":1', said)), "non_canonical_json")


@chapter.must("18", "Text that parsers do not agree on is answered 400.", "§2.4, fed:A7, fed:A8, fed:A9", "node")
async def hostile_bytes(probe: Probe) -> None:
    text = wire.canonical(probe.sign(await probe.draft("query", {"text": "mark"})))
    hostile = {
        "nested 5000 deep": b"[" * 5000,
        "not UTF-8": text.replace(b"mark", b"\xff\xfe"),
        "UTF-16": text.decode().encode("utf-16"),
        "a lone surrogate": text.replace(b"mark", b"\\ud800"),
        "NaN": text.replace(b'"mark"', b"NaN"),
    }
    for what, content in hostile.items():
        answer = await probe.post(content)
        expect(answer.status == 400, f"HTTP {answer.status} for {what}")
        expect(answer.members().get("error") in ("invalid_json", "malformed_envelope"), f"no known error for {what}")


@chapter.must(
    "19", "A sender's domain that is an address, or no domain at all, is refused as `bad_from`.", "§3.1, §25 N9", "node"
)
async def unsafe_domains(probe: Probe) -> None:
    for domain in ("127.0.0.1", "[::1]", "0x7f.1", "a..test", "-a.test", "good.test/x", "good.test#x", "user@[::1]"):
        _expect_malformed(await _broken(probe, _with(**{"from": f"judge@{domain}"})), "bad_from")


CLAUSES = chapter.clauses
