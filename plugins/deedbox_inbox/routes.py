"""The inbox's doors: `/oip/inbox`, `/oip/ledger`, `/oip/conversation` (OIP 1.2 §8, §10, §11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import orjson
from litestar import asgi

from deedbox import Intent, Refusal, Reply, web
from deedbox.envelope.message import KINDS, MAX_BODY, PROTOCOL
from deedbox_inbox.reading import Look, look
from deedbox_inbox.reception import UNREAD, Reception
from deedbox_inbox.record import status_of, verdict

if TYPE_CHECKING:
    from deedbox import Node

_FROM_BROWSERS = [(b"access-control-allow-headers", b"*"), (b"access-control-max-age", b"86400")]
MESSAGES = (b"GET", b"HEAD", b"POST", b"OPTIONS")
DOCUMENTS = (b"GET", b"HEAD", b"OPTIONS")
DOCUMENT = web.JsonPhrasing()


def routes(reception: Reception) -> list[Any]:
    """The three handlers, sharing one reception."""

    @asgi("/oip/inbox", copy_scope=False)
    async def inbox(scope: Any, receive: Any, send: Any) -> None:
        method = scope["method"]
        if method == "POST":
            await _take(reception, scope, receive, send)
        elif method in ("GET", "HEAD"):
            await web.respond_json(send, 200, self_description(scope["node"], reception.max_life))
        else:
            await _other(method, MESSAGES, send)

    @asgi("/oip/ledger", copy_scope=False)
    async def ledger(scope: Any, receive: Any, send: Any) -> None:
        await _read(scope, send, "FED_LEDGER", ("msg", "limit"))

    @asgi("/oip/conversation", copy_scope=False)
    async def conversation(scope: Any, receive: Any, send: Any) -> None:
        await _read(scope, send, "FED_CONVERSATION", ("id", "limit"))

    return [inbox, ledger, conversation]


async def _other(method: str, allowed: tuple[bytes, ...], send: Any) -> None:
    """What browsers ask before they dare (OIP 1.2 §29 W56), and methods nothing here takes."""
    methods = b", ".join(allowed)
    if method == "OPTIONS":
        headers = [web.CORS, (b"access-control-allow-methods", methods), *_FROM_BROWSERS]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await web.respond_json(send, 405, {"error": "method_not_allowed"}, [(b"allow", methods)])


async def _take(reception: Reception, scope: Any, receive: Any, send: Any) -> None:
    node: Node = scope["node"]
    address = web.address(scope)
    try:
        raw = await web.read_body(scope, receive, node.kernel.settings.limits.inbox.bytes)
    except Refusal as refusal:
        intent = Intent("inbox", node.kernel.clock.now(), "", None, UNREAD, address=address)
        await node.refuse(intent, refusal)
        return await _plain(send, refusal)
    reply = await reception.accept(raw, address=address)
    if not reply.answer or reply.outcome.code == "rate_limited":
        return await _plain(send, reply.refusal or Refusal("unavailable", 503, retry_after=5))
    await _hand_out(node, reception, reply, receive, send)


async def _hand_out(node: Node, reception: Reception, reply: Reply, receive: Any, send: Any) -> None:
    """Sign what was committed, and remember whether it left: an answer nobody had is given to the repeat."""
    waited_for = reply.undelivered or not reply.repeat
    try:
        if _is_gone(receive):
            raise web.Disconnected
        await web.respond(send, 200, reception.answer(reply), _verdict_headers(reply))
    except BaseException:
        if waited_for:
            await node.not_given(reply)
        raise
    if waited_for:
        node.given(reply)


def _is_gone(receive: Any) -> bool:
    """Whether the caller has hung up: the server swallows what is sent after that (uvicorn tells)."""
    return bool(getattr(getattr(receive, "__self__", None), "disconnected", False))


def _verdict_headers(reply: Reply) -> list[web.Header]:
    """The status that HTTP must not show (OIP 1.2 §8.2, §29 W8)."""
    assert reply.operation is not None  # noqa: S101  # an answer without an operation was phrased by nobody
    if reply.undelivered:
        said, status = "redelivered", 200
    else:
        said, status = verdict(reply.operation, reply.outcome), status_of(reply.operation, reply.outcome)
    return [(b"oip-verdict", said.encode()), (b"oip-status", b"%d" % status), web.NO_STORE]


async def _plain(send: Any, refusal: Refusal) -> None:
    """A transport-level no: unsigned, with a real status (OIP 1.2 §8.2)."""
    if refusal.code == "too_large":
        refusal = Refusal("envelope_too_large", 413, refusal.detail, extra=dict(refusal.extra))
    await web.respond_refusal(send, refusal)


async def _read(scope: Any, send: Any, key: str, known: tuple[str, ...]) -> None:
    """A document anybody may read, down the road like everything else; long reading is done beside the writer."""
    node: Node = scope["node"]
    if scope["method"] not in ("GET", "HEAD"):
        return await _other(scope["method"], DOCUMENTS, send)
    asked = parse_qs(scope["query_string"].decode("latin-1"))
    intent = Look(
        surface="federation",
        at=node.kernel.clock.now(),
        object_key=key,
        arguments={name: asked[name][0] for name in known if name in asked},
        phrasing=DOCUMENT,
        credential=node.present(web.headers(scope)),
        address=web.address(scope),
        request_id=scope["request_id"],
    )
    reply = await node.govern(await _looked(node, intent))
    if reply.refusal is not None:
        return await web.respond_refusal(send, reply.refusal)
    value = reply.outcome.value if reply.outcome.ok else orjson.loads(reply.answer)
    found = 200 if reply.outcome.ok and value["ok"] else 404
    status = found if reply.outcome.ok else reply.outcome.status
    await web.respond_json(send, status, value, web.receipt_header(reply.receipt))


async def _looked(node: Node, intent: Look) -> Intent:
    """The intent with what it asks for; one whose arguments are no good is left to be refused."""
    offered = node.catalog.get(intent.object_key)
    if offered is not None and not node.shield.spent(intent.address, intent.at):
        try:
            intent.arguments = offered.accept(intent.arguments)
        except Refusal:
            return intent
        intent.seen = await node.database.read(look, intent.arguments)
    return intent


def self_description(node: Node, max_life: int) -> dict[str, Any]:
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
            "kinds": sorted(KINDS),
            "invoke_body": {"key": "OBJECT_KEY", "args": "<object arguments>"},
            "invoke_requires": [
                "a verified sender signature",
                "a recorded capability whose audience matches from",
                "scope, chain, contract and use gates",
            ],
            "max_inline_body_bytes": MAX_BODY,
            "max_request_bytes": node.kernel.settings.limits.inbox.bytes,
            "max_ttl_seconds": max_life // 1000,
        },
        "security": {
            "identity_is_not_authority": True,
            "message_text_is_data": True,
            "only_invoke_can_execute": True,
            "transport": "https",
        },
        "well_known": f"{base}/.well-known/oip.json",
    }
