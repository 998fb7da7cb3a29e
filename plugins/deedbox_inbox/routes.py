"""The inbox's doors: `/oip/inbox`, `/oip/ledger`, `/oip/conversation` (OIP 1.2 §8, §10, §11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import orjson
from litestar import asgi

from deedbox import Intent, Refusal, Reply, web
from deedbox.canonical import canonical
from deedbox.clock import parse_instant, utc_z
from deedbox.envelope.message import MAX_BODY, PROTOCOL
from deedbox.envelope.seal import sign_bytes
from deedbox_inbox.phrasing import REPLY_LIFE
from deedbox_inbox.reception import UNREAD, Reception
from deedbox_inbox.record import verdict

if TYPE_CHECKING:
    from deedbox import Node

METHODS = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-max-age", b"86400"),
]
ALLOW = [(b"allow", b"GET, POST, OPTIONS")]
DOCUMENT = web.JsonPhrasing()


def routes(reception: Reception) -> list[Any]:
    """The three handlers, sharing one reception."""

    @asgi("/oip/inbox", copy_scope=False)
    async def inbox(scope: Any, receive: Any, send: Any) -> None:
        method = scope["method"]
        if method == "POST":
            await _take(reception, scope, receive, send)
        elif method in ("GET", "HEAD"):
            await web.respond_json(send, 200, self_description(scope["node"]))
        elif method == "OPTIONS":
            await web.respond(send, 204, b"", METHODS)
        else:
            await web.respond_json(send, 405, {"error": "method_not_allowed"}, ALLOW)

    @asgi("/oip/ledger", copy_scope=False)
    async def ledger(scope: Any, receive: Any, send: Any) -> None:
        await _read(scope, send, "FED_LEDGER", ("msg", "limit"))

    @asgi("/oip/conversation", copy_scope=False)
    async def conversation(scope: Any, receive: Any, send: Any) -> None:
        await _read(scope, send, "FED_CONVERSATION", ("id", "limit"))

    return [inbox, ledger, conversation]


async def _take(reception: Reception, scope: Any, receive: Any, send: Any) -> None:
    node: Node = scope["node"]
    address = web.address(scope)
    limit = node.kernel.settings.limits.inbox.bytes
    try:
        raw = await web.read_body(scope, receive, limit)
    except Refusal as refusal:
        intent = Intent("inbox", node.kernel.clock.now(), "", None, UNREAD, address=address)
        await node.refuse(intent, refusal)
        return await _plain(send, refusal)
    reply = await reception.accept(raw, address=address)
    if not reply.answer or (reply.refusal is not None and reply.refusal.code == "rate_limited"):
        return await _plain(send, reply.refusal or Refusal("unavailable", 503, retry_after=5))
    await _hand_out(node, reply, send)


async def _hand_out(node: Node, reply: Reply, send: Any) -> None:
    """Sign what was committed, and remember whether it left."""
    try:
        await web.respond(send, 200, signed(node, reply), _verdict_headers(reply))
    except (OSError, web.Disconnected):
        await node.not_given(reply)
        raise
    node.given(reply)


def signed(node: Node, reply: Reply) -> bytes:
    """The stored answer with its signature; one given late is renewed under the same id (decision 30)."""
    assert reply.operation is not None  # noqa: S101  # an answer without an operation was phrased by nobody
    agent = reply.operation.found.envelope.recipient
    now = node.kernel.clock.now()
    stored = _renewed(reply.answer, now) if reply.undelivered else reply.answer
    return sign_bytes(stored, node.kernel.agents.pair(agent, now), agent)


def _renewed(stored: bytes, now: int) -> bytes:
    members = orjson.loads(stored)
    if (parse_instant(members["expires_at"]) or 0) - now > REPLY_LIFE // 2:
        return stored
    return canonical({**members, "created_at": utc_z(now), "expires_at": utc_z(now + REPLY_LIFE)})


def _verdict_headers(reply: Reply) -> list[web.Header]:
    assert reply.operation is not None  # noqa: S101
    claimed = reply.refusal is None and not reply.repeat
    said = verdict(reply.operation, reply.outcome, claimed=claimed)
    if reply.undelivered:
        return [(b"oip-verdict", b"redelivered"), (b"oip-status", b"200"), web.NO_STORE]
    return [(b"oip-verdict", said.encode()), (b"oip-status", b"%d" % reply.outcome.status), web.NO_STORE]


async def _plain(send: Any, refusal: Refusal) -> None:
    """A transport-level no: unsigned, with a real status (OIP 1.2 §8.2)."""
    if refusal.code == "too_large":
        refusal = Refusal("envelope_too_large", 413, refusal.detail, extra=dict(refusal.extra))
    await web.respond_refusal(send, refusal)


async def _read(scope: Any, send: Any, key: str, known: tuple[str, ...]) -> None:
    """A document anybody may read, down the road like everything else."""
    node: Node = scope["node"]
    if scope["method"] not in ("GET", "HEAD"):
        return await web.respond_json(send, 405, {"error": "method_not_allowed"}, [(b"allow", b"GET, HEAD")])
    asked = parse_qs(scope["query_string"].decode("latin-1"))
    arguments = {name: asked[name][0] for name in known if name in asked}
    intent = Intent(
        surface="federation",
        at=node.kernel.clock.now(),
        object_key=key,
        arguments=arguments,
        phrasing=DOCUMENT,
        credential=node.present(web.headers(scope)),
        address=web.address(scope),
        request_id=scope["request_id"],
    )
    reply = await node.govern(intent)
    if reply.refusal is not None:
        return await web.respond_refusal(send, reply.refusal)
    value = reply.outcome.value if reply.outcome.ok else orjson.loads(reply.answer)
    status = value.pop("_status", 200) if reply.outcome.ok else reply.outcome.status
    await web.respond_json(send, status, value, web.receipt_header(reply.receipt))


def self_description(node: Node) -> dict[str, Any]:
    """What `GET /oip/inbox` answers."""
    base = node.kernel.base_url
    return {
        "endpoint": "oip/inbox",
        "method": "POST",
        "protocol": PROTOCOL,
        "agent": node.kernel.agents.home,
        "agents": list(node.kernel.agents.ids),
        "what": "post a signed oip-message/1 envelope; the answer is a signed envelope",
        "envelope": {
            "required": [
                *("protocol", "id", "conversation", "kind", "from", "to", "created_at", "expires_at"),
                *("body", "body_sha256", "signature"),
            ],
            "kinds": ["query", "propose", "invoke", "result", "event", "cancel", "error"],
            "invoke_body": {"key": "OBJECT_KEY", "args": "<object arguments>"},
            "invoke_requires": [
                "a verified sender signature",
                "a recorded capability whose audience matches from",
                "scope, chain, contract and use gates",
            ],
            "max_inline_body_bytes": MAX_BODY,
            "max_request_bytes": node.kernel.settings.limits.inbox.bytes,
            "max_ttl_seconds": 900,
        },
        "security": {
            "identity_is_not_authority": True,
            "message_text_is_data": True,
            "only_invoke_can_execute": True,
            "transport": "https",
        },
        "well_known": f"{base}/.well-known/oip.json",
    }
