"""The inbox's doors: what they say of themselves, how much they take, what browsers and strangers are told (§8)."""

from __future__ import annotations

import gzip
import json

import pytest

from deedbox.envelope.message import KINDS
from tests.facets.inbox.conftest import Start
from tests.facets.inbox.scene import Home, vector


@pytest.mark.case("oip:W59")
async def test_the_inbox_describes_itself(home: Home) -> None:
    told = (await home.running.get("/oip/inbox")).json()
    known = vector("inbox-get")
    assert set(known) - set(told) == {"reference_client"}, "which this node does not serve"
    for name in ("endpoint", "method", "protocol", "agent", "security", "well_known"):
        assert told[name] == known[name]
    envelope = told["envelope"]
    assert set(known["envelope"]) <= set(envelope)
    for name in ("required", "invoke_body", "max_inline_body_bytes", "max_ttl_seconds"):
        assert envelope[name] == known["envelope"][name]
    assert set(envelope["kinds"]) == KINDS == set(known["envelope"]["kinds"])
    assert envelope["max_request_bytes"] == 131_072


async def test_an_operator_may_want_shorter_lives(start: Start) -> None:
    home = await start(facets={"inbox": {"max_life_seconds": 60}})
    assert (await home.running.get("/oip/inbox")).json()["envelope"]["max_ttl_seconds"] == 60
    assert (await home.post(home.letter(life=60_000))).kind == "result"
    assert (await home.post(home.letter(life=66_000))).members["reason"] == "ttl_too_long"


@pytest.mark.case("oip:W56")
async def test_a_browser_may_ask_before_it_posts(home: Home) -> None:
    for path, methods in (("inbox", "GET, HEAD, POST, OPTIONS"), ("ledger", "GET, HEAD, OPTIONS")):
        answer = await home.running.request("OPTIONS", f"/oip/{path}")
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-methods"] == methods
        assert answer.headers["access-control-allow-headers"] == "*"
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "content-length" not in answer.headers
    posted = await home.running.post("/oip/inbox", home.letter())
    assert posted.headers["access-control-allow-origin"] == "*"


async def test_other_methods_are_told_which_there_are(home: Home) -> None:
    for path, method, allowed in (
        ("inbox", "PUT", "GET, HEAD, POST, OPTIONS"),
        ("inbox", "DELETE", "GET, HEAD, POST, OPTIONS"),
        ("ledger", "POST", "GET, HEAD, OPTIONS"),
        ("conversation", "PATCH", "GET, HEAD, OPTIONS"),
    ):
        answer = await home.running.request(method, f"/oip/{path}")
        assert (answer.status, answer.json()["error"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allowed


async def test_a_head_is_a_get_without_its_body(home: Home) -> None:
    for path in ("/oip/inbox", "/oip/ledger", "/oip/conversation"):
        got, head = await home.running.get(path), await home.running.request("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(got.body))


@pytest.mark.case("fed:F8")
async def test_a_request_over_the_limit_is_told_the_limit(home: Home) -> None:
    answer = await home.running.post("/oip/inbox", b" " * 131_073)
    assert (answer.status, answer.json()["error"]) == (413, "envelope_too_large")
    assert answer.json()["limit"] == 131_072
    assert (await home.running.post("/oip/inbox", b" " * 131_072)).json()["error"] == "invalid_json"


@pytest.mark.case("fed:F6")
async def test_a_request_of_undeclared_length_is_cut_while_it_is_read(home: Home) -> None:
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    head = b"POST /oip/inbox HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = await home.running.raw(head + chunk * 9)  # never ended: who waits for the end waits for ever
    assert (answer.status, answer.json()) == (
        413,
        {**answer.json(), "error": "envelope_too_large", "limit": 131_072},
    )


@pytest.mark.case("fed:F11")
async def test_nothing_is_inflated_on_the_way_in(home: Home) -> None:
    body = gzip.compress(json.dumps(home.letter()).encode())
    for coding in ("gzip", "br", "deflate", "gzip, identity"):
        answer = await home.running.post("/oip/inbox", body, {"content-encoding": coding})
        assert (answer.status, answer.json()["error"]) == (415, "content_encoding_refused")
    plain = await home.running.post("/oip/inbox", home.letter(), {"content-encoding": "identity"})
    assert plain.status == 200


async def test_the_content_type_decides_nothing(home: Home) -> None:
    for kind in ("text/plain", "application/oip+json", "application/json; charset=utf-8"):
        answer = await home.running.post("/oip/inbox", home.letter(), {"content-type": kind})
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


async def test_an_address_that_asks_too_often_is_told_to_wait(start: Start) -> None:
    home = await start(limits={"shield": {"address": "3/min"}})
    told = [await home.running.post("/oip/inbox", home.letter()) for _ in range(4)]
    assert [each.status for each in told] == [200, 200, 200, 429]
    assert (told[3].json()["error"], told[3].headers["retry-after"]) == ("rate_limited", "20")
