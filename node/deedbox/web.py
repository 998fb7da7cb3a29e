"""What every HTTP surface needs: a bounded body, an exact answer, a refusal in JSON; raw bytes, never decoded for us.

A signed body must reach the strict parser as it came, so no framework model stands before it (libraries §2.1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Set
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

import orjson

from deedbox.canonical import canonical, sha256_hex
from deedbox.intent import Operation, Outcome, Output
from deedbox.ledger.receipt import Receipt
from deedbox.refusals import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_WITHIN = 20.0
FINISHES_WITHIN = 0.5
"""Seconds a body may take to arrive, and the rest of one that was refused."""
REST_READ = 1_048_576
"""Bytes that are read of that rest, and thrown away."""

JSON = (b"content-type", b"application/json")
CORS = (b"access-control-allow-origin", b"*")
NO_STORE = (b"cache-control", b"no-store")
NO_REFERRER = (b"referrer-policy", b"no-referrer")


class Disconnected(Exception):
    """The caller went away before its body was complete."""


def header(scope: Scope, name: bytes) -> str:
    """The first value of a header, named in lower case; empty if absent."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""


def headers(scope: Scope) -> dict[str, str]:
    """All headers by lower-case name; of repeated ones the first."""
    found: dict[str, str] = {}
    for key, value in scope["headers"]:
        found.setdefault(key.decode("latin-1"), value.decode("latin-1"))
    return found


def client(scope: Scope) -> str:
    """The caller's address as it is, for logs."""
    found = scope.get("client")
    return str(found[0]) if found else ""


def address(scope: Scope) -> str:
    """The caller's network, for shields only: whoever has one IPv6 address has all of its /64 (RFC 4291 §2.5.1)."""
    return _network(client(scope))


@lru_cache(maxsize=4096)
def _network(text: str) -> str:
    found = host(text)
    return str(ip_network((found, 64), strict=False)) if ":" in found else found


@lru_cache(maxsize=4096)
def host(text: str) -> str:
    """An address in one form: without port or zone, IPv4 never as IPv6 (RFC 5952); anything else as it is."""
    bare = text.rpartition(":")[0] if text.count(":") == 1 else text.partition("]")[0].lstrip("[")
    try:
        found = ip_address(bare.partition("%")[0])
    except ValueError:
        return text.replace(":", "")
    return str(found if isinstance(found, IPv4Address) else found.ipv4_mapped or found)


def behind(scope: Scope, proxies: Set[str]) -> None:
    """Put the caller's own address in place of our proxies': the last one in ``X-Forwarded-For`` that is not ours.

    Without the header, or where all of it is ours, the connection's address stays. What a stranger writes into the
    header stands left of what our proxy appended and is not looked at.
    """
    if host(client(scope)) not in proxies:
        return
    lines = [value.decode("latin-1") for key, value in scope["headers"] if key == b"x-forwarded-for"]
    for told in reversed(",".join(lines).split(",")):  # some proxies add a line of their own to the stranger's
        hop = told.strip()
        if hop and host(hop) not in proxies:
            scope["client"] = (hop[:64], 0)
            return


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body as it was sent.

    Refuses ``content_encoding_refused`` (415, nothing is inflated on the way in), ``too_large`` (413, at the limit,
    never read to its end) and ``body_too_slow`` (408).
    """
    try:
        return await _read(scope, receive, limit)
    except Refusal as refusal:
        if refusal.status != 408 and not header(scope, b"expect"):
            await _let_finish(receive)
        raise


async def _read(scope: Scope, receive: Receive, limit: int) -> bytes:
    declared = 0
    for key, value in scope["headers"]:
        if key == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise Refusal("content_encoding_refused", 415, "send the body without a content coding")
        if key == b"content-length":
            declared = int(value) if value.isdigit() else 0
    if declared > limit:
        raise too_large(limit)
    message = await receive() if _has_begun(receive) else None
    if message is not None and message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        return body
    try:
        async with asyncio.timeout(BODY_WITHIN):
            return await _gathered(message or await receive(), receive, limit)
    except TimeoutError:
        raise Refusal("body_too_slow", 408, f"the body took more than {BODY_WITHIN:g} s") from None


def _has_begun(receive: Receive) -> bool:
    """Whether a part of the body is here, so that asking for it cannot wait and needs no deadline (uvicorn tells)."""
    event = getattr(getattr(receive, "__self__", None), "message_event", None)
    return event is not None and bool(event.is_set())


async def _let_finish(receive: Receive, most: int = REST_READ) -> None:
    """Throw away a little more of a body that was refused: whoever is cut off while he sends never reads why.

    A connection closed with bytes unread is reset (RFC 9293 §3.6.1), and the reset may overtake the answer.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(FINISHES_WITHIN):
            while most > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                most -= len(message.get("body", b""))


def too_large(limit: int) -> Refusal:
    return Refusal(
        "too_large", 413, f"more than {limit} bytes", next_step="send less at a time", extra={"limit": limit}
    )


async def _gathered(message: Any, receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise Disconnected
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise too_large(limit)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


async def respond(send: Send, status: int, body: bytes, extra: Iterable[Header] = (), *, kind: Header = JSON) -> None:
    """One answer with its length."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [kind, length, CORS, *extra]})
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, status: int, value: Any, extra: Iterable[Header] = ()) -> None:
    """A document, printed for people too."""
    await respond(send, status, orjson.dumps(value, option=orjson.OPT_INDENT_2), extra)


def refusal_body(refusal: Refusal) -> dict[str, Any]:
    """The plain form of a no: ``error`` is the code; ``detail`` and ``next_step`` are for people."""
    said: dict[str, Any] = {"error": refusal.code}
    if refusal.detail:
        said["detail"] = refusal.detail
    if refusal.next_step:
        said["next_step"] = refusal.next_step
    return {**said, **refusal.extra}


def refusal_headers(refusal: Refusal) -> list[Header]:
    found = [NO_STORE]
    if refusal.retry_after is not None:
        found.append((b"retry-after", b"%d" % refusal.retry_after))
    return found


async def respond_refusal(send: Send, refusal: Refusal, extra: Mapping[str, Any] | None = None) -> None:
    """A no in JSON with its status."""
    body = refusal_body(refusal) | dict(extra or {})
    await respond_json(send, refusal.status, body, refusal_headers(refusal))


class JsonPhrasing:
    """The plain answer of a document: the value, or the refusal; the receipt goes into a header."""

    def output(self, operation: Operation, outcome: Outcome) -> Output:
        said = outcome.value if outcome.ok else {"error": outcome.code, "detail": outcome.detail, **outcome.extra}
        body = canonical(said)
        return Output(body, sha256_hex(body))

    def answer(self, operation: Operation, output: Output, receipt: Receipt | None) -> bytes:
        return output.body


def receipt_header(receipt: Receipt | None) -> list[Header]:
    """Which receipt an answer has, for those who want to look it up."""
    return [(b"deedbox-receipt", receipt.id.encode())] if receipt else []
