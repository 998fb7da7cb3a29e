"""What the node fetches and delivers: which answers it takes, how long it waits, how often it asks.

Real TLS over loopback throughout; which addresses it goes to is in test_destinations.py.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deedbox.outgoing import Outgoing, OutgoingRefusal
from deedbox.refusals import Fault
from tests.kernel.https_peer import (
    PUBLIC,
    Authority,
    Names,
    Peer,
    Request,
    Script,
    Wire,
    drip,
    hang_up,
    plain,
    redirect,
    serving,
)

Client = Callable[..., Outgoing]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, ["alpha.example", "beta.example", "gamma.example"])


@pytest.fixture
async def peer(authority: Authority) -> AsyncIterator[Peer]:
    async with serving(Peer(), authority.server()) as peer:
        yield peer


@pytest.fixture
async def client(authority: Authority, peer: Peer) -> AsyncIterator[Client]:
    made: list[Outgoing] = []

    def make(**options: object) -> Outgoing:
        defaults = {"resolver": Names(), "ssl_context": authority.client(), "connect": Wire(peer.port)}
        made.append(Outgoing(**(defaults | options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for outgoing in made:
        await outgoing.close()


async def refusal_of(outgoing: Outgoing, path: str = "/", **options: object) -> OutgoingRefusal:
    with pytest.raises(OutgoingRefusal) as caught:
        await outgoing.get_json("alpha.example", path, **options)  # type: ignore[arg-type]
    assert caught.value.fault is Fault.NETWORK
    return caught.value


async def post_refusal(outgoing: Outgoing, path: str, **options: object) -> OutgoingRefusal:
    with pytest.raises(OutgoingRefusal) as caught:
        await outgoing.post("alpha.example", 443, path, b'{"a":1}', **options)  # type: ignore[arg-type]
    return caught.value


async def test_a_document_comes_with_what_its_headers_say(peer: Peer, client: Client) -> None:
    kept = ("Cache-Control: public, max-age=300", "Age: 20", 'ETag: "v1"')
    peer.scripts["/x?y=z"] = plain(b'{"a":1}', *kept, content_type="application/json; charset=utf-8")
    fetched = await client().get_json("Alpha.Example", "/x?y=z")
    assert (fetched.status, fetched.body, fetched.max_age, fetched.etag) == (200, b'{"a":1}', 280, '"v1"')
    assert (fetched.content_type, fetched.final_host) == ("application/json; charset=utf-8", "alpha.example")
    asked = peer.requests[0].headers
    assert (asked["accept"], asked["accept-encoding"]) == ("application/json", "identity")
    assert not {"cookie", "authorization", "referer"} & set(asked)


async def test_an_unchanged_document_is_not_sent_again(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = plain(b"", 'ETag: "v1"', "Cache-Control: no-store", status="304 Not Modified")
    fetched = await client().get_json("alpha.example", "/x", etag='"v1"')
    assert (fetched.status, fetched.body, fetched.max_age) == (304, b"", 0)
    assert peer.requests[0].headers["if-none-match"] == '"v1"'


async def test_an_etag_that_could_break_a_header_is_dropped(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = plain(b"{}", "ETag: v\t1")
    fetched = await client().get_json("alpha.example", "/x")
    assert (fetched.etag, fetched.max_age) == (None, None)


async def test_cookies_are_forgotten_and_connections_kept(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = plain(b"{}", "Set-Cookie: a=b")
    outgoing = client()
    await outgoing.get_json("alpha.example", "/x")
    await outgoing.get_json("alpha.example", "/x")
    assert "cookie" not in peer.requests[1].headers
    assert peer.connections == 1


async def test_proxies_of_the_environment_are_ignored(
    peer: Peer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    peer.scripts["/x"] = plain()
    assert (await client().get_json("alpha.example", "/x")).status == 200


@pytest.mark.case("fed:F2")
async def test_two_redirects_are_followed_and_each_is_looked_up(peer: Peer, client: Client) -> None:
    peer.scripts |= {
        "/x": redirect("https://beta.example/y#part"),
        "/y": redirect("//gamma.example/z", "308 Permanent Redirect"),
        "/z": plain(b'{"domain":"alpha.example"}'),
    }
    names = Names()
    fetched = await client(resolver=names).get_json("alpha.example", "/x")
    assert (fetched.final_host, fetched.body) == ("gamma.example", b'{"domain":"alpha.example"}')
    assert names.asked == ["alpha.example", "beta.example", "gamma.example"]
    assert peer.names == names.asked
    assert [request.headers["host"] for request in peer.requests] == names.asked


@pytest.mark.case("fed:F2")
async def test_a_third_redirect_is_refused(peer: Peer, client: Client) -> None:
    for hop in range(20):
        peer.scripts[f"/{hop}"] = redirect(f"/{hop + 1}")
    assert (await refusal_of(client(), "/0")).code == "redirect_refused"
    assert [request.target for request in peer.requests] == ["/0", "/1", "/2"]


@pytest.mark.case("fed:F2", "oip:W15", "oip:N9")
@pytest.mark.parametrize(
    "location",
    [
        *("http://169.254.169.254/", "http://alpha.example/", "https://127.0.0.1/", "https://[::1]/", ""),
        *("https://alpha.example:8443/", "https://user@beta.example/", "file:///etc/passwd", "https://beta.local/"),
        *("https://beta.test/", "https://[", "https://beta.example/\tx y"),
    ],
)
async def test_a_redirect_to_anything_but_https_on_a_domain_is_refused(
    location: str, peer: Peer, client: Client
) -> None:
    peer.scripts["/x"] = redirect(location)
    wire = Wire(peer.port)
    assert (await refusal_of(client(connect=wire), "/x")).code == "redirect_refused"
    assert (len(peer.requests), wire.dialled) == (1, [(PUBLIC, 443)])


@pytest.mark.case("fed:F2", "fed:F1")
async def test_a_redirect_to_a_private_address_is_refused(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = redirect("https://beta.example/x")
    wire = Wire(peer.port)
    names = Names({"beta.example": [["10.0.0.7"]]})
    assert (await refusal_of(client(resolver=names, connect=wire), "/x")).code == "address_refused"
    assert (len(peer.requests), wire.dialled) == (1, [(PUBLIC, 443)])


@pytest.mark.case("fed:F5")
async def test_a_compressed_answer_is_refused_unopened(peer: Peer, client: Client) -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    for path, coding in (("/x", "gzip"), ("/y", "identity, gzip"), ("/z", "br")):
        peer.scripts[path] = plain(bomb, f"Content-Encoding: {coding}")
        assert (await refusal_of(client(), path)).code == "content_encoding_refused"
        refusal = await post_refusal(client(), path)
        assert (refusal.code, refusal.sent) == ("content_encoding_refused", True)


@pytest.mark.case("oip:W15")
@pytest.mark.parametrize("length", [True, False])
async def test_a_long_answer_is_refused_at_the_limit(length: bool, peer: Peer, client: Client) -> None:
    peer.scripts |= {"/big": plain(b" " * 1001, length=length), "/fits": plain(b" " * 1000, length=length)}
    outgoing = client()
    refusal = await refusal_of(outgoing, "/big", limit=1000)
    assert (refusal.code, refusal.extra) == ("response_too_large", {"limit": 1000})
    assert (await outgoing.get_json("alpha.example", "/fits", limit=1000)).body == b" " * 1000
    assert (await post_refusal(outgoing, "/big", response_limit=1000)).code == "response_too_large"


async def test_an_endless_answer_costs_no_more_than_its_limit(peer: Peer, client: Client) -> None:
    written = 0

    async def endless(writer: asyncio.StreamWriter, request: Request) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
            written += 65_536
            await writer.drain()

    peer.scripts["/x"] = endless
    assert (await refusal_of(client(), "/x")).code == "response_too_large"
    assert written < 16 << 20  # what the buffers of loopback hold, far from the gigabytes eight seconds would carry


@pytest.mark.parametrize(
    ("content_type", "taken"),
    [
        *(("application/json", True), ("application/jwk-set+json", True), ("Application/JSON ; charset=utf-8", True)),
        *(("text/html", False), ("text/json", False), ("application/jsonx", False), ("", False)),
    ],
)
async def test_only_json_is_taken(content_type: str, taken: bool, peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = plain(content_type=content_type)
    if taken:
        assert (await client().get_json("alpha.example", "/x")).body == b"{}"
    else:
        assert (await refusal_of(client(), "/x")).code == "wrong_content_type"


async def test_an_error_status_is_told(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = plain(b"{}", "Retry-After: 7", status="503 Service Unavailable")
    refusal = await refusal_of(client(), "/x")
    assert (refusal.code, refusal.extra, refusal.retry_after) == ("http_status", {"status": 503}, 7)
    assert (await refusal_of(client(), "/nothing")).extra == {"status": 404}


@pytest.mark.case("fed:F7")
async def test_a_dripping_answer_ends_at_the_deadline(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = drip(0.05)
    begun = time.monotonic()
    assert (await refusal_of(client(deadline=0.5), "/x")).code == "timed_out"
    refusal = await post_refusal(client(), "/x", timeout=0.5)
    assert (refusal.code, refusal.sent, refusal.status) == ("timed_out", True, 504)
    assert time.monotonic() - begun < 3


async def test_redirects_share_one_deadline(peer: Peer, client: Client) -> None:
    async def slowly(writer: asyncio.StreamWriter, request: Request) -> None:
        await asyncio.sleep(0.3)
        await redirect(request.target + "x")(writer, request)

    peer.scripts |= {"/": slowly, "/x": slowly, "/xx": slowly}
    assert (await refusal_of(client(deadline=0.5))).code == "timed_out"


async def test_a_certificate_for_another_name_is_no_connection(tmp_path: Path, client: Client) -> None:
    stranger = Authority(tmp_path, ["other.example"])
    async with serving(Peer(), stranger.server()) as impostor:
        trusted_but_other = client(ssl_context=stranger.client(), connect=Wire(impostor.port))
        not_trusted = client(connect=Wire(impostor.port))
        for outgoing in (trusted_but_other, not_trusted):
            refusal = await post_refusal(outgoing, "/x")
            assert (refusal.code, refusal.sent) == ("unreachable", False)
            assert "certificate" in refusal.detail
        assert impostor.requests == []


def test_a_context_that_verifies_nothing_is_refused() -> None:
    blind = ssl.create_default_context()
    blind.check_hostname = False
    with pytest.raises(ValueError, match="no trust"):
        Outgoing(ssl_context=blind)


async def test_a_message_is_delivered_and_any_answer_taken(peer: Peer, client: Client) -> None:
    peer.scripts["/oip/inbox"] = plain(b'{"error":"x"}', "X-One: a", "X-One: b", status="403 Forbidden")
    answer = await client().post("alpha.example", 443, "/oip/inbox", b'{"a":1}', headers={"X-Extra": "1"})
    assert (answer.status, answer.body, answer.headers["x-one"]) == (403, b'{"error":"x"}', "a, b")
    request = peer.requests[0]
    assert (request.method, request.body, request.headers["x-extra"]) == ("POST", b'{"a":1}', "1")
    assert (request.headers["content-type"], request.headers["content-length"]) == ("application/json", "7")
    assert "transfer-encoding" not in request.headers


async def test_a_message_is_not_redirected(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = redirect("https://beta.example/x", "307 Temporary Redirect")
    refusal = await post_refusal(client(), "/x")
    assert (refusal.code, refusal.sent) == ("redirect_refused", True)
    assert len(peer.requests) == 1


async def test_a_failure_tells_whether_the_message_may_have_arrived(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = hang_up()
    refusal = await post_refusal(client(), "/x")
    assert (refusal.code, refusal.sent) == ("unreachable", True)
    refusal = await post_refusal(client(connect=Wire(peer.port, dead=frozenset({PUBLIC}))), "/x")
    assert (refusal.code, refusal.sent) == ("unreachable", False)
    assert len(peer.requests) == 1


def waiting(release: asyncio.Event) -> Script:
    async def answer(writer: asyncio.StreamWriter, request: Request) -> None:
        await release.wait()
        await plain()(writer, request)

    return answer


@pytest.mark.case("oip:W15")
async def test_four_exchanges_with_a_host_run_at_once(peer: Peer, client: Client) -> None:
    release = asyncio.Event()
    peer.scripts |= {"/x": waiting(release), "/free": plain()}
    outgoing = client()
    waiters = [asyncio.create_task(outgoing.get_json("alpha.example", "/x")) for _ in range(9)]
    await asyncio.sleep(0.2)  # time for a fifth to arrive, if it could
    assert peer.at_once == 4
    assert (await outgoing.get_json("beta.example", "/free")).status == 200
    release.set()
    assert {fetched.status for fetched in await asyncio.gather(*waiters)} == {200}
    assert peer.most_at_once == 5  # beta's one beside alpha's four


class Held:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.instant = 1_000_000

    def now(self) -> int:
        return self.instant


@pytest.mark.case("oip:W15")
async def test_thirty_fetches_of_a_host_in_a_minute(peer: Peer, client: Client) -> None:
    peer.scripts["/x"] = plain()
    clock = Held()
    outgoing = client(clock=clock)
    for _ in range(30):
        await outgoing.get_json("alpha.example", "/x")
        clock.instant += 1000
    refusal = await refusal_of(outgoing, "/x")
    assert (refusal.code, refusal.retry_after, len(peer.requests)) == ("too_many_fetches", 30, 30)
    await outgoing.get_json("beta.example", "/x")
    await outgoing.post("alpha.example", 443, "/x", b"{}")
    clock.instant += 30_000
    await outgoing.get_json("alpha.example", "/x")
    assert (await refusal_of(outgoing, "/x")).code == "too_many_fetches"


async def test_a_cancelled_fetch_leaves_the_client_whole(peer: Peer, client: Client) -> None:
    peer.scripts |= {"/x": waiting(asyncio.Event()), "/y": plain()}
    outgoing = client()
    for _ in range(6):
        fetch = asyncio.create_task(outgoing.get_json("alpha.example", "/x"))
        await asyncio.sleep(0.03)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
    assert (await outgoing.get_json("alpha.example", "/y")).status == 200
