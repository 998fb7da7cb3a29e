"""The ASGI application: the facets' routes, health, metrics, and what runs beside them while the node serves."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NoReturn

import orjson
from litestar import Litestar, Request, asgi
from litestar.exceptions import HTTPException
from litestar.handlers import ASGIRouteHandler

from deedbox import web
from deedbox.clock import utc_z
from deedbox.govern.act import interrupt_expired
from deedbox.govern.claims import mark_handed, prune
from deedbox.govern.processes import RENEW_EVERY
from deedbox.jobs import working
from deedbox.ledger.sealing import keep_sealed
from deedbox.logs import redacted_query, redacted_text
from deedbox.node import Node
from deedbox.refusals import Fault, Refusal
from deedbox.web import Receive, Scope, Send

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FRAMEWORK = {404: "not_found", 405: "method_not_allowed"}
HANDED_EVERY, SWEEP_EVERY = 1.0, 15.0
"""Seconds."""
PRUNED_AT_ONCE = 500
GONE = 499
"""What the log says of a caller that did not wait; never sent."""
App = Callable[[Any, Receive, Send], Awaitable[None]]


def routes(node: Node) -> list[Any]:
    """Everything that is mounted: health and metrics, then what the facets contributed."""

    @asgi("/health/live", copy_scope=False)
    async def live(scope: Any, receive: Any, send: Any) -> None:
        _require_reading(scope)
        await web.respond_json(send, 200, {"ok": True})

    @asgi(["/health/ready", "/ready", "/health"], copy_scope=False)
    async def ready(scope: Any, receive: Any, send: Any) -> None:
        _require_reading(scope)
        await node.database.read(lambda reader: reader.one("select 1 as one"))
        await web.respond_json(send, 200, {"ok": True, "domain": node.domain, "facets": [f.name for f in node.facets]})

    @asgi("/metrics", copy_scope=False)
    async def metrics(scope: Any, receive: Any, send: Any) -> None:
        _require_reading(scope)
        kind = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
        await web.respond(send, 200, node.kernel.metrics.text(), kind=kind)

    return [live, ready, metrics, *node.routes]


def _require_reading(scope: Scope) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        raise Refusal("method_not_allowed", 405)


def build(node: Node, *, access_log: bool = True) -> App:
    """The application of a node: what uvicorn is given."""
    litestar = Litestar(
        route_handlers=routes(node),
        openapi_config=None,
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
        exception_handlers={HTTPException: _refuse, Exception: _escape},
    )
    return _outermost(litestar, node, access_log=access_log)


class _Exchange:
    """One request on its way through: sees the status pass, and adds the request's id to the answer."""

    __slots__ = ("_send", "_transport", "began", "id", "path", "status")

    def __init__(self, scope: Scope, node: Node, send: Send) -> None:
        given = web.header(scope, b"x-request-id")
        self.id = given if _REQUEST_ID.fullmatch(given) else node.ids.new("req")
        self.began = time.perf_counter()
        self.path = scope["path"]  # as it was asked: a mounted route leaves its own part of it in the scope
        self.status = 0
        self._send = send
        self._transport = getattr(getattr(send, "__self__", None), "transport", None)
        scope["request_id"] = self.id
        scope["node"] = node

    async def send(self, message: Any) -> None:
        """Raises ``Disconnected`` where the server would drop an answer without a word (ASGI 2.4, "Send")."""
        if self._transport is not None and self._transport.is_closing():
            raise web.Disconnected
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode())]
        await self._send(message)


def _escape(_: Request[Any, Any, Any], error: Exception) -> NoReturn:
    """Let what a route raises reach the outermost layer instead of becoming the framework's own answer."""
    raise error


def _refuse(_: Request[Any, Any, Any], error: HTTPException) -> NoReturn:
    """The framework's own no, which is about paths and methods, in our words."""
    raise Refusal(_FRAMEWORK.get(error.status_code, "bad_request"), error.status_code) from error


def _outermost(inner: Any, node: Node, *, access_log: bool) -> App:
    """Gives each request an id, turns what escapes into a JSON refusal, counts it and writes one line."""
    metrics = node.kernel.metrics
    thin, lines = _thin(node.routes), _Lines()
    proxies = frozenset(web.host(str(proxy)) for proxy in node.kernel.settings.node.trusted_proxies)

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        if proxies:
            web.behind(scope, proxies)
        exchange = _Exchange(scope, node, send)
        try:
            await thin.get(scope["path"], inner)(scope, receive, exchange.send)
        except Refusal as refusal:
            if refusal.__cause__ is not None and refusal.fault is Fault.OURS:
                node.log.error("refused", code=refusal.code, request_id=exchange.id, exc_info=refusal.__cause__)
            await _say_no(exchange, refusal)
        except web.Disconnected:
            exchange.status = GONE
        except Exception:
            node.log.exception("request_failed", request_id=exchange.id)
            await _say_no(exchange, Refusal("internal", 500, fault=Fault.OURS, extra={"request_id": exchange.id}))
        metrics.requests.add("http", str(exchange.status))
        if access_log:
            lines.add(_line(scope, exchange, known=exchange.path in thin))

    return app


async def _say_no(exchange: _Exchange, refusal: Refusal) -> None:
    """Answer for a route that gave up; one that had begun to answer cannot take it back."""
    if exchange.status:
        return
    with suppress(web.Disconnected):
        await web.respond_refusal(exchange.send, refusal)
        return
    exchange.status = GONE


def _thin(routes: Iterable[Any]) -> dict[str, App]:
    """The plain ASGI handlers by exact path, called directly: routing them costs a tenth of an envelope."""
    plain = [each for each in routes if isinstance(each, ASGIRouteHandler)]
    return {path: each.fn for each in plain for path in each.paths if "{" not in path}


class _Lines:
    """What the log says of requests, a line each; those that end in one turn of the loop are written together."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def add(self, line: Mapping[str, Any]) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._write)
        self._waiting.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        os.write(2, b"".join(lines))


def _line(scope: Scope, exchange: _Exchange, *, known: bool) -> dict[str, Any]:
    """``known``: the path is one of ours, and so nothing that anybody put into it."""
    path, query = exchange.path, scope["query_string"]
    return {
        "event": "request",
        "timestamp": utc_z(time.time_ns() // 1_000_000),
        "method": scope["method"],
        "path": path if known else redacted_text(path),
        "query": redacted_query(query) if query else "",
        "status": exchange.status,
        "ms": round((time.perf_counter() - exchange.began) * 1000, 1),
        "from": web.client(scope),
        "request_id": exchange.id,
    }


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    """Everything that lives while the node serves; left in reverse."""
    async with AsyncExitStack() as stack:
        await node.database.run(node.processes.renew)
        tasks = [
            asyncio.create_task(_every(RENEW_EVERY, node, _renew), name="lease"),
            asyncio.create_task(_every(HANDED_EVERY, node, _mark_handed), name="handed"),
            asyncio.create_task(_every(1.0, node, keep_sealed), name="sealing"),
            asyncio.create_task(_every(SWEEP_EVERY, node, _sweep), name="sweep"),
        ]
        stack.push_async_callback(_stop, node, tasks)
        for service in node.services:
            await stack.enter_async_context(service(node))
        await stack.enter_async_context(working(node))
        yield


async def _stop(node: Node, tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await _mark_handed(node)
    await keep_sealed(node, whole=True)


async def _every(seconds: float, node: Node, work: Callable[[Node], Awaitable[Any]]) -> None:
    """Run again and again; a failure is logged and the next turn comes all the same."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work(node)
        except Exception:
            node.log.exception("service_failed", service=work.__name__)


async def _renew(node: Node) -> None:
    await node.database.run(node.processes.renew)


async def _mark_handed(node: Node) -> None:
    groups = node.handout.take()
    if groups:
        await node.database.run(mark_handed, node.processes.own, groups)


async def _sweep(node: Node) -> None:
    while await node.database.run(prune, PRUNED_AT_ONCE) >= PRUNED_AT_ONCE:
        pass
    await node.database.run(interrupt_expired, node)
