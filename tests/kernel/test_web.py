"""What any HTTP surface does with a body, a caller that leaves, a route that breaks, and a secret in an address."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from litestar import Request, asgi, get

from deedbox import Facet, Plugin, Refusal, hookimpl, web
from deedbox.app import build
from deedbox.canonical import b64url
from deedbox.logs import logger, redacted_query, redacted_text
from deedbox.testing import FrozenClock, HttpAnswer, RunningNode, a_node

LIMIT = 65_536
TOKEN = "sh.1893456000.row,k:NOW.abcdefgh.abcdefghijklmnopqrstuvwxyz0123456789"
OWNER = "ok_" + "k" * 43


class Desk(Plugin):
    """Takes bodies, and breaks in several ways."""

    facet = Facet(name="desk", summary="Takes bodies.")

    @hookimpl
    def deedbox_routes(self) -> Iterable[Any]:
        @asgi("/desk", copy_scope=False)
        async def desk(scope: Any, receive: Any, send: Any) -> None:
            body = await web.read_body(scope, receive, LIMIT)
            await web.respond_json(send, 200, {"bytes": len(body), "request": scope["request_id"]})

        @asgi("/breaks", copy_scope=False)
        async def breaks(scope: Any, receive: Any, send: Any) -> None:
            raise ValueError(f"a bug with {TOKEN} and {OWNER}")

        @asgi("/fails-late", copy_scope=False)
        async def fails_late(scope: Any, receive: Any, send: Any) -> None:
            await web.respond_json(send, 200, {})
            raise Refusal("too_late", 409)

        @asgi("/starved", copy_scope=False)
        async def starved(scope: Any, receive: Any, send: Any) -> None:
            raise Refusal("store_unavailable", 503, retry_after=5)

        @asgi("/slow", copy_scope=False)
        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.sleep(0.2)
            await web.respond_json(send, 200, {})

        @get("/typed/{number:int}")
        async def typed(request: Request[Any, Any, Any]) -> dict[str, int]:
            return dict(request.path_params)

        return [desk, breaks, fails_late, starved, slow, typed]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    facets: dict[str, dict[str, Any]] = {"wellknown": {}, "inbox": {}, "desk": {}}
    async with a_node(tmp_path, "alpha.example", facets=facets, plugins={"desk": Desk}, clock=FrozenClock()) as made:
        yield made


def post(target: str, body: bytes = b"", *headers: str) -> bytes:
    lines = (f"POST {target} HTTP/1.1", "host: alpha.example", "connection: close", *headers, "", "")
    return "\r\n".join(lines).encode() + body


def in_chunks(body: bytes, size: int = 4096) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


# --- sizes -----------------------------------------------------------------------------------------------------------


async def test_a_body_up_to_the_limit_is_taken(node: RunningNode) -> None:
    for size in (0, 1, LIMIT):
        assert (await node.post("/desk", b"x" * size)).json()["bytes"] == size
    chunked = post("/desk", in_chunks(b"x" * LIMIT), "transfer-encoding: chunked")
    assert (await node.raw(chunked)).json()["bytes"] == LIMIT


async def test_a_declared_length_over_the_limit_is_refused_before_the_body_comes(node: RunningNode) -> None:
    for length in (LIMIT + 1, 10**15):
        answer = await node.raw(post("/desk", b"", f"content-length: {length}"))
        assert (answer.status, answer.json()["error"]) == (413, "too_large")
        assert answer.json()["limit"] == LIMIT


@pytest.mark.case("fed:F6")
async def test_a_body_of_undeclared_length_is_cut_while_it_is_read(node: RunningNode) -> None:
    answer = await node.raw(post("/desk", in_chunks(b"x" * 400_000), "transfer-encoding: chunked"))
    assert (answer.status, answer.json()["error"]) == (413, "too_large")


@pytest.mark.case("fed:F11")
@pytest.mark.parametrize("coding", ["gzip", "br", "GZIP", "identity, gzip", "x-made-up"])
async def test_nothing_is_inflated(node: RunningNode, coding: str) -> None:
    answer = await node.post("/desk", gzip.compress(b"x" * 100_000), {"content-encoding": coding})
    assert (answer.status, answer.json()["error"]) == (415, "content_encoding_refused")
    assert (await node.post("/desk", b"x", {"content-encoding": "identity"})).status == 200


@pytest.mark.parametrize(
    "lines",
    [
        ("content-length: -1",),
        ("content-length: 1x",),
        ("content-length: 1", "content-length: 2"),
        ("content-length: 5", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked, identity",),
    ],
)
async def test_lengths_that_contradict_one_another_are_no_request(node: RunningNode, lines: tuple[str, ...]) -> None:
    answer = await node.raw(post("/desk", in_chunks(b"x"), *lines))
    assert answer.status == 400


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "BODY_WITHIN", 0.3)


async def slowly(node: RunningNode, sent: Iterable[bytes], pause: float) -> HttpAnswer:
    """Sends pieces one by one and hears what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    hearing = asyncio.create_task(reader.read(65_536))
    for piece in sent:
        if hearing.done():
            break
        writer.write(piece)
        await asyncio.sleep(pause)
    raw = await hearing
    writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    return HttpAnswer(int(head.split(b" ")[1]), {}, body)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("lines", [("content-length: 100",), ("transfer-encoding: chunked",)])
async def test_a_body_that_never_comes_is_not_waited_for(node: RunningNode, lines: tuple[str, ...]) -> None:
    async with asyncio.timeout(5):
        answer = await slowly(node, [post("/desk", b"", *lines)], 0.5)
    assert (answer.status, answer.json()["error"]) == (408, "body_too_slow")


@pytest.mark.usefixtures("hurried")
async def test_a_body_that_drips_is_cut_off_as_a_whole(node: RunningNode) -> None:
    async with asyncio.timeout(5):
        answer = await slowly(node, [post("/desk", b"", "content-length: 100"), *([b"x"] * 50)], 0.05)
    assert answer.status == 408


@pytest.mark.usefixtures("hurried")
async def test_a_body_in_pieces_is_taken_if_it_is_whole_in_time(node: RunningNode) -> None:
    answer = await slowly(node, [post("/desk", b"", "content-length: 3"), b"x", b"y", b"z"], 0.02)
    assert (answer.status, answer.json()["bytes"]) == (200, 3)


async def test_a_caller_that_leaves_in_the_middle_is_no_fault(
    node: RunningNode, capfd: pytest.CaptureFixture[str]
) -> None:
    for target in ("/desk", "/oip/inbox"):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(post(target, b"half", "content-length: 100"))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""
    assert (await node.post("/desk", b"whole")).status == 200
    assert "request_failed" not in capfd.readouterr().err


# --- contents --------------------------------------------------------------------------------------------------------

MALFORMED = {
    "deep": b"[" * 5_000,
    "deep and closed": b"[" * 500 + b"]" * 500,
    "deep in an object": b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    "a name twice": b'{"a":1,"a":2}',
    "not UTF-8": b'{"a":"\xff\xfe"}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"a":1}',
    "a lone surrogate": b'{"a":"\\ud800"}',
    "no number": b'{"a":NaN}',
    "infinite": b'{"a":1e999}',
    "a very long number": b'{"a":' + b"9" * 5_000 + b"}",
    "a control character": b'{"a":"\x00"}',
    "nothing": b"",
    "half": b'{"a":',
    "two": b"{}{}",
    "no object": b'"text"',
}


@pytest.mark.case("fed:A9")
@pytest.mark.parametrize("what", MALFORMED)
async def test_what_is_no_message_is_a_400_and_no_fault_of_ours(
    node: RunningNode, capfd: pytest.CaptureFixture[str], what: str
) -> None:
    answer = await node.post("/oip/inbox", MALFORMED[what])
    assert answer.status == 400
    assert answer.json()["error"] in ("invalid_json", "malformed_envelope")
    assert "request_failed" not in capfd.readouterr().err


# --- ids, paths, faults ----------------------------------------------------------------------------------------------


async def test_a_request_keeps_its_id_or_is_given_one(node: RunningNode) -> None:
    answer = await node.post("/desk", b"", {"x-request-id": "r-1.2_3"})
    assert (answer.headers["x-request-id"], answer.json()["request"]) == ("r-1.2_3", "r-1.2_3")
    for given in ("", "with space", "x" * 65, "é", "<script>"):
        told = (await node.post("/desk", b"", {"x-request-id": given})).headers["x-request-id"]
        assert told.startswith("req_")


async def test_what_is_not_there_is_said_in_json(node: RunningNode) -> None:
    for method, target, status, code in (
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/typed/x", 404, "not_found"),
        ("POST", "/typed/1", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
    ):
        answer = await node.request(method, target)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert answer.json().get("error") == code
        assert answer.headers["x-request-id"].startswith("req_")


async def test_a_fault_of_ours_tells_nothing_but_where_to_look(
    node: RunningNode, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = await node.get("/breaks", x_request_id="r-7")
    assert (answer.status, answer.json()) == (500, {"error": "internal", "request_id": "r-7"})
    log = capfd.readouterr().err
    assert "r-7" in log
    assert "ValueError" in log
    assert TOKEN not in log
    assert OWNER not in log


async def test_an_answer_that_has_begun_is_not_taken_back(node: RunningNode) -> None:
    assert (await node.get("/fails-late")).status == 200
    assert (await node.get("/health")).status == 200


async def test_a_no_that_passes_says_when(node: RunningNode) -> None:
    answer = await node.get("/starved")
    assert (answer.status, answer.headers["retry-after"], answer.headers["cache-control"]) == (503, "5", "no-store")


async def test_a_caller_that_did_not_wait_is_counted_as_gone(node: RunningNode) -> None:
    """uvicorn drops such an answer without a word, and then nobody would know that it was not given."""
    _, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(b"GET /slow HTTP/1.1\r\nhost: alpha.example\r\n\r\n")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(5):
        while b'status="499"' not in (await node.get("/metrics")).body:  # noqa: ASYNC110  # it watches a count
            await asyncio.sleep(0.05)


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("limit=5&msg=msg_1", "limit=5&msg=msg_1"),
        (f"share={TOKEN}&x=1", "share=[redacted]&x=1"),
        (f"sh%61re={TOKEN}", "share=[redacted]"),
        (f"SHARE={TOKEN}", "SHARE=[redacted]"),
        ("tk=abc&terminal_key=def&token=ghi", "tk=[redacted]&terminal_key=[redacted]&token=[redacted]"),
        (f"note={TOKEN}", "note=[redacted]"),
        (f"note={TOKEN.replace('.', '%2E')}", "note=[redacted]"),
        (TOKEN, "[redacted]=[redacted]"),
        (f"x={OWNER}", "x=[redacted]"),
        ("api_key=abc&client_secret=d&Password=f", "api_key=[redacted]&client_secret=[redacted]&Password=[redacted]"),
        ("a=1&share=" + "s" * 5_000, "a=1"),
        ("x" * 600, "x" * 512),
    ],
)
def test_a_query_is_logged_without_its_secrets(query: str, shown: str) -> None:
    assert redacted_query(query.encode()) == shown


async def line_of(node: RunningNode, capfd: pytest.CaptureFixture[str], path: str, query: str = "") -> str:
    """What the log says of a request with both kinds of credential."""
    await build(node.node)(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"x-terminal-key", OWNER.encode()), (b"authorization", f"Bearer {TOKEN}".encode())],
            "client": ("192.0.2.1", 5),
        },
        _nothing,
        _nowhere,
    )
    await asyncio.sleep(0)  # lines are written when a turn of the loop ends
    (line,) = [line for line in capfd.readouterr().err.splitlines() if '"event":"request"' in line]
    return line


async def test_the_line_of_a_request_says_what_was_asked(node: RunningNode, capfd: pytest.CaptureFixture[str]) -> None:
    """Also where a route is mounted and leaves only its own part of the path in the scope."""
    for path, status in (("/.well-known/oip.json", 200), ("/.well-known/none", 404)):
        said = orjson.loads(await line_of(node, capfd, path))
        assert (said["path"], said["status"]) == (path, status)
        assert datetime.fromisoformat(said["timestamp"]).tzinfo is not None


async def test_the_line_of_a_request_holds_no_secret(node: RunningNode, capfd: pytest.CaptureFixture[str]) -> None:
    line = await line_of(node, capfd, f"/health/{TOKEN}", f"share={TOKEN}&limit=1")
    said = orjson.loads(line)
    assert (said["path"], said["query"]) == ("/health/[redacted]", "share=[redacted]&limit=1")
    assert (said["method"], said["status"], said["from"]) == ("GET", 404, "192.0.2.1")
    assert OWNER not in line
    assert TOKEN not in line


async def _nothing() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _nowhere(message: Any) -> None:
    """An answer nobody reads."""


def test_a_log_line_holds_no_secret(capfd: pytest.CaptureFixture[str]) -> None:
    log = logger(node="alpha.test")
    pem = "-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----"
    log.info("said", owner_key=OWNER, share=TOKEN, text=f"{TOKEN} {pem} Bearer {'b' * 30}", authorization="Basic x")
    told = capfd.readouterr().err
    for secret in (OWNER, TOKEN, "MIG", "b" * 30, "Basic x"):
        assert secret not in told


def test_a_fresh_random_secret_is_recognised_by_its_look() -> None:
    for _ in range(200):
        secret = f"ok_{b64url(os.urandom(32))}"
        assert secret not in redacted_text(f"it was {secret}.")
