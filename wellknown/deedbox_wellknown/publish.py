"""Serves what facets contribute under ``/.well-known/`` (RFC 8615): rendered once, then the same bytes to everybody.

Conditional requests by RFC 9110 §13, freshness by RFC 9111 §5.2.2. Anybody may read, from a browser too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litestar import asgi

from deedbox import Document, Refusal, web
from deedbox.canonical import b64url, sha256_digest

if TYPE_CHECKING:
    from deedbox import Node

PREFIX = "/.well-known/"
ALLOWED = b"GET, HEAD, OPTIONS"
_PREFLIGHT = (
    (b"access-control-allow-methods", ALLOWED),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-max-age", b"86400"),
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A document's bytes, what they depend on, until when they are kept (milliseconds), and their headers."""

    body: bytes
    version: object
    until: int
    etag: str
    headers: tuple[web.Header, ...]


class Publisher:
    """Keeps each document's bytes for its life."""

    def __init__(self) -> None:
        self._kept: dict[str, Rendered] = {}
        self._rendering: dict[str, asyncio.Lock] = {}

    async def rendered(self, node: Node, document: Document) -> Rendered:
        """The bytes, rendered at most once at a time; whatever the renderer refuses is not kept."""
        async with self._rendering.setdefault(document.name, asyncio.Lock()):
            now, version = node.kernel.clock.now(), document.version(node)
            kept = self._kept.get(document.name)
            if kept is None or now >= kept.until or kept.version != version:
                body = await document.render(node)
                kept = self._kept[document.name] = _rendered(document, body, version, now)
            return kept

    def route(self) -> Any:
        """The one route for all documents: everything below the prefix that no facet serves by itself."""

        @asgi(PREFIX, is_mount=True, copy_scope=True)
        async def well_known(scope: Any, receive: Any, send: Any) -> None:
            await self.answer(scope, send)

        return well_known

    async def answer(self, scope: web.Scope, send: web.Send) -> None:
        """One request: a document, its headers, nothing changed, or a refusal."""
        node: Node = scope["node"]
        method: str = scope["method"]
        node.shield.check(web.address(scope), node.kernel.clock.now())
        if method not in ("GET", "HEAD", "OPTIONS"):
            no = Refusal("method_not_allowed", 405, f"{method} is not offered here")
            return await web.respond_json(send, 405, web.refusal_body(no), [web.NO_STORE, (b"allow", ALLOWED)])
        path = scope["raw_path"].decode("latin-1")  # as it was asked for: the mount has cut the decoded one
        document = node.documents.get(path.removeprefix(PREFIX))
        if document is None:
            raise Refusal("not_found", 404, "this domain publishes no such document")
        if method == "OPTIONS":
            return await _send(send, 204, b"", _PREFLIGHT)
        found = await self.rendered(node, document)
        if _unchanged(web.header(scope, b"if-none-match"), found.etag):
            return await _send(send, 304, b"", found.headers)
        length = (b"content-length", b"%d" % len(found.body))
        kind = (b"content-type", document.media_type.encode())
        await _send(send, 200, b"" if method == "HEAD" else found.body, (kind, length, *found.headers))


def _rendered(document: Document, body: bytes, version: object, now: int) -> Rendered:
    etag = f'"{b64url(sha256_digest(body))[:22]}"'
    headers = ((b"cache-control", b"public, max-age=%d" % document.max_age), (b"etag", etag.encode()))
    return Rendered(body, version, now + document.max_age * 1000, etag, headers)


def _unchanged(asked: str, etag: str) -> bool:
    """Whether ``If-None-Match`` names what we have, compared weakly (RFC 9110 §8.8.3.2, §13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in asked.split(",")]
    return "*" in tags or etag in tags


async def _send(send: web.Send, status: int, body: bytes, headers: Iterable[web.Header]) -> None:
    """An answer without headers of its own but CORS: 204 and 304 have neither type nor length."""
    await send({"type": "http.response.start", "status": status, "headers": [web.CORS, *headers]})
    await send({"type": "http.response.body", "body": body})
