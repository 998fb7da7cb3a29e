"""The door itself, /api/dispatch: what may pass, how it is asked down the road, how the answer leaves (OIP 1.2 §16)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from litestar import asgi

from deedbox import Anonymous, Intent, Once, OwnerKey, Refusal, Reply, web
from deedbox.canonical import digest, sha256_hex
from deedbox.govern.limits import Shield
from deedbox_dispatch import asking, documents
from deedbox_dispatch.asking import Asking
from deedbox_dispatch.links import Links
from deedbox_dispatch.phrasing import DocumentAnswer, RunAnswer, denial

if TYPE_CHECKING:
    from deedbox import Node

PATH = "/api/dispatch"
KEY_HEADER = "idempotency-key"
DISCREET = [web.NO_STORE, web.NO_REFERRER]
METHODS = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-max-age", b"86400"),
]
ALLOW = (b"allow", b"GET, HEAD, POST, OPTIONS")
REPLAYED = (b"idempotency-replayed", b"true")
WARNING = (b"x-ms-agent-note", b"The token does not work. Nothing ran. Do not report success.")

_KEY = re.compile(r"[!-~]{1,128}")


def door(shield: Shield) -> Any:
    """The handler; ``shield`` is its own limit per address."""

    @asgi(PATH, copy_scope=False)
    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        method, node = scope["method"], scope["node"]
        headers = web.headers(scope)
        if method == "OPTIONS":
            await web.respond(send, 204, b"", METHODS)
        elif method == "HEAD" or is_prefetch(headers):
            await web.respond(send, 204, b"", DISCREET)
        elif method not in ("GET", "POST"):
            await web.respond_json(send, 405, {"error": "method_not_allowed"}, [ALLOW, *DISCREET])
        elif method == "GET" and not scope["query_string"]:
            await web.respond_json(send, 200, documents.manifest(node), DISCREET)
        else:
            await _ask(node, shield, scope, receive, send, headers)

    return dispatch


def is_prefetch(headers: Mapping[str, str]) -> bool:
    """Whether nobody asked yet: a browser or a preview that fetches ahead (OIP 1.2 §29 W1)."""
    purposes = (headers.get(name, "").lower() for name in ("purpose", "sec-purpose", "x-purpose", "x-moz"))
    return any("prefetch" in purpose or "preview" in purpose for purpose in purposes)


async def _ask(node: Node, shield: Shield, scope: Any, receive: Any, send: Any, headers: Mapping[str, str]) -> None:
    now, address = node.kernel.clock.now(), web.address(scope)
    try:
        shield.check(address, now)
        asked = await _read(node, scope, receive, headers)
        intent = intent_of(node, asked, headers, now)
    except Refusal as refusal:
        blank = Intent("dispatch", now, "", None, DocumentAnswer(node), address=address)
        await node.refuse(blank, refusal)
        return await _refuse(node, send, refusal)
    intent.address, intent.request_id = address, scope["request_id"]
    reply = await node.govern(intent)
    try:
        await _give(node, send, reply)
    except (OSError, web.Disconnected):
        if reply.claim:
            await node.not_given(reply)
        raise
    if reply.claim:  # only what was claimed is waited for
        node.given(reply)


async def _read(node: Node, scope: Any, receive: Any, headers: Mapping[str, str]) -> Asking:
    limit = node.kernel.settings.limits.dispatch.bytes
    given = asking.parameters(scope["query_string"], limit)
    if scope["method"] == "GET":
        asked = asking.from_query(given, headers)
    else:
        asked = asking.from_body(await web.read_body(scope, receive, limit), given, headers)
    if asked.action != "invoke" and node.catalog.get(asked.object_key) is None:
        raise asking.unrecognized(list(given) or [asked.action])
    return asked


def intent_of(node: Node, asked: Asking, headers: Mapping[str, str], now: int) -> Intent:
    """The asking as the road takes it; who asks and what it holds up are two things."""
    runs = asked.action == "invoke"
    credential = credential_of(node, asked, headers)
    subject: dict[str, Any] = {"action": asked.action, **asked.claims.said()}
    if asked.token and runs:
        subject["capability"] = fingerprint(asked.token)
    return Intent(
        surface="dispatch",
        at=now,
        object_key=asked.object_key,
        arguments=asked.arguments,
        phrasing=RunAnswer(node, asked.claims) if runs else DocumentAnswer(node),
        credential=credential,
        token=asked.token if runs or asked.explains_token else None,
        once=_once(asked, headers, credential, now) if runs else None,
        inputs_sha256=sha256_hex(asked.arguments) if runs else digest(asked.arguments),
        dry=asked.dry,
        subject=subject,
    )


def fingerprint(token: str) -> str:
    """What a holder can compute of its own token (OIP 1.2 §14.1)."""
    return f"cap_{sha256_hex(token)[:16]}"


def credential_of(node: Node, asked: Asking, headers: Mapping[str, str]) -> Any:
    """Who is asking: the owner by header, else whoever holds the token, wherever it was put (OIP 1.2 §14.6)."""
    plain = {name: text for name, text in headers.items() if name not in ("authorization", *asking.TOKEN_HEADERS)}
    found = node.present(plain)
    if not isinstance(found, Anonymous) or not asked.token or asked.explains_token:
        return found
    return node.present({**plain, "authorization": f"Bearer {asked.token}"})


def _once(asked: Asking, headers: Mapping[str, str], credential: Any, now: int) -> Once | None:
    """A caller's own name for a call; whoever proves nothing has no names (OIP 1.2 §16.9)."""
    given = headers.get(KEY_HEADER)
    if given is None or asked.dry or isinstance(credential, Anonymous):
        return None
    if not _KEY.fullmatch(given):
        raise Refusal("bad_idempotency_key", 400, "1 to 128 printable ASCII characters")
    caller = "owner" if isinstance(credential, OwnerKey) else fingerprint(asked.token or "")
    return Once(f"dispatch/{caller}/{sha256_hex(given)[:32]}", digest([asked.object_key, asked.arguments]), now)


async def _refuse(node: Node, send: Any, refusal: Refusal) -> None:
    body = denial(refusal, Links(node.kernel.base_url))
    await web.respond_json(send, refusal.status, body, [*web.refusal_headers(refusal), web.NO_REFERRER])


async def _give(node: Node, send: Any, reply: Reply) -> None:
    if reply.repeat and reply.stored:
        status = orjson.loads(reply.stored).get("status", 200)
        return await web.respond(send, status, reply.stored, [REPLAYED, *DISCREET])
    if not reply.answer:
        return await _refuse(node, send, reply.refusal or Refusal("unavailable", 503, retry_after=5))
    headers = list(DISCREET)
    if reply.outcome.code in ("token_corrupted", "token_expired"):
        headers.append(WARNING)
    if reply.outcome.retry_after is not None:
        headers.append((b"retry-after", b"%d" % reply.outcome.retry_after))
    await web.respond(send, _status(reply), reply.answer, headers)


def _status(reply: Reply) -> int:
    """200 for a run even if the object failed, which ``ok`` says; a no has the status of its code (OIP 1.2 §16.6)."""
    phrasing = reply.operation.intent.phrasing if reply.operation else None
    if isinstance(phrasing, DocumentAnswer):
        return phrasing.status if reply.outcome.ok else reply.outcome.status
    if reply.repeat:
        return 409 if reply.stored is None else 200
    ran = reply.outcome.ok or (reply.operation is not None and reply.operation.invocation is not None)
    return 200 if ran and reply.outcome.ended.value != "refused" else reply.outcome.status
