"""Facet ``https``: exactly the signed bytes by one POST, and what each answer means for the next attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox import Node
from deedbox.delivery import Handover, NotDelivered, Parcel, send_message
from deedbox.envelope.outbox import Letter, queue_message
from deedbox.outgoing import Outgoing
from deedbox.testing import FrozenClock, RunningNode
from deedbox_https import Https
from deedbox_https.transport import HttpsTransport, retry_after
from deedbox_wellknown.development import Development
from tests.kernel.bare_node import a_bare_node
from tests.kernel.https_peer import drip, hang_up, plain, redirect
from tests.kernel.outbox_peer import BETA, INBOX, LEDGER, Beta, a_beta, status

TWO: dict[str, dict[str, Any]] = {"wellknown": {}, "inbox": {}, "https": {}}
WIRE = b'{"b": 1,  "a":"\xc3\xa9"}'
"""Bytes that no printer of ours would make: what is sent must be exactly these."""


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Node, Beta]]:
    clock = FrozenClock()
    outgoing = Outgoing(development=Development("alpha.test", tmp_path / "development"), clock=clock)
    database = f"sqlite:///{tmp_path / 'deedbox.db'}"
    async with (
        a_beta(tmp_path / "development", clock) as beta,
        a_bare_node(tmp_path, Https, database=database, clock=clock, outgoing=outgoing) as node,
    ):
        yield node, beta


def parcel(**changes: Any) -> Parcel:
    parts = {
        "message_id": "msg_12345678",
        "kind": "invoke",
        "sender": "node@alpha.test",
        "recipient": BETA,
        "body_sha256": "a" * 64,
        "inbox": f"https://beta.test{INBOX}",
        "wire": WIRE,
    }
    return Parcel(**(parts | changes))


async def carried(node: Node, **changes: Any) -> Handover:
    return await HttpsTransport(development=True).deliver(node, parcel(**changes))


async def refused(node: Node, **changes: Any) -> NotDelivered:
    with pytest.raises(NotDelivered) as raised:
        await carried(node, **changes)
    return raised.value


async def test_the_bytes_sent_are_the_signed_ones(pair: tuple[Node, Beta]) -> None:
    node, beta = pair
    beta.at_inbox(plain(b"  {}\n"))
    found = await carried(node)
    assert (found.status, found.answer, found.known) == (200, b"  {}\n", None)
    (request,) = beta.peer.requests
    assert (request.method, request.target, request.body) == ("POST", INBOX, WIRE)
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers
    assert "cookie" not in request.headers


@pytest.mark.parametrize("line", ["301 Moved", "302 Found", "303 See Other", "307 Go", "308 Go"])
async def test_no_redirect_is_followed_and_nothing_goes_twice(pair: tuple[Node, Beta], line: str) -> None:
    node, beta = pair
    beta.at_inbox(redirect("https://beta.test/elsewhere", line))
    no = await refused(node)
    assert (no.code, no.final, no.sent) == ("redirect_refused", False, True)
    assert [each.target for each in beta.peer.requests] == [INBOX]


@pytest.mark.parametrize(
    ("answer", "final", "uncertain"),
    [
        (status("400 Bad"), True, False),
        (status("404 Not Found"), True, False),
        (status("413 Too Large"), True, False),
        (status("422 No"), True, False),
        (status("408 Slow"), False, False),
        (status("425 Early"), False, False),
        (status("429 Too Many"), False, False),
        (status("503 Busy"), False, False),
        (status("500 Oops"), False, True),
        (status("502 Bad Gateway"), False, True),
        (status("504 Timeout"), False, True),
        (hang_up(), False, True),
    ],
)
async def test_what_an_answer_means(pair: tuple[Node, Beta], answer: Any, final: bool, uncertain: bool) -> None:
    node, beta = pair
    beta.at_inbox(answer)
    no = await refused(node)
    assert (no.final, no.uncertain, no.sent) == (final, uncertain, True)


async def test_who_cannot_be_reached_was_sent_nothing(pair: tuple[Node, Beta]) -> None:
    node, _ = pair
    no = await refused(node, inbox="https://gamma.test/oip/inbox")
    assert (no.code, no.final, no.sent, no.uncertain) == ("unreachable", False, False, False)


@pytest.mark.parametrize(
    "inbox", ["http://beta.test/oip/inbox", "https://127.0.0.1/x", "https://u@beta.test/", "nonsense"]
)
async def test_an_inbox_elsewhere_than_at_a_domain_is_not_gone_to(pair: tuple[Node, Beta], inbox: str) -> None:
    node, beta = pair
    no = await refused(node, inbox=inbox)
    assert (no.code in ("bad_url", "bad_domain"), no.sent) == (True, False)
    assert beta.peer.requests == []


async def test_a_dripping_answer_ends_in_time(pair: tuple[Node, Beta], monkeypatch: pytest.MonkeyPatch) -> None:
    node, beta = pair
    beta.at_inbox(drip(0.05))
    monkeypatch.setattr("deedbox_https.transport.SECONDS", 0.4)
    async with asyncio.timeout(5):
        no = await refused(node)
    assert (no.code, no.uncertain) == ("timed_out", True)


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (b'{"ok":true,"records":[]}', False),
        (b'{"ok":true,"records":[{"msg_id":"msg_12345678","body_sha256":"' + b"b" * 64 + b'"}]}', False),
        (b'{"ok":true,"records":[{"msg_id":"msg_another1","body_sha256":"' + b"a" * 64 + b'"}]}', False),
        (b'{"ok":true,"records":[{"msg_id":"msg_12345678","body_sha256":"' + b"a" * 64 + b'"}]}', True),
        (b'{"ok":true,"record":{"id":"msg_12345678","body_sha256":"' + b"a" * 64 + b'"}}', True),
        (b'{"ok":true,"records":"many","record":7}', False),
        (b"[]", False),
        (b"{nonsense", False),
    ],
)
async def test_the_peers_ledger_is_joined_on_id_and_body(pair: tuple[Node, Beta], said: bytes, known: bool) -> None:
    node, beta = pair
    beta.at_inbox(plain(b"{}"))
    beta.in_ledger("msg_12345678", plain(said))
    found = await carried(node, uncertain=True)
    assert (found.known is not None) == known
    assert [each.target for each in beta.peer.requests] == [LEDGER + "msg_12345678", INBOX]


async def test_only_an_uncertain_invoke_is_asked_about(pair: tuple[Node, Beta]) -> None:
    node, beta = pair
    beta.at_inbox(plain(b"{}"))
    await carried(node, uncertain=True, kind="query")
    await carried(node, uncertain=False)
    assert beta.visits == ["inbox", "inbox"]


@pytest.mark.parametrize("line", ["500 Oops", "503 Busy", "429 Slow"])
async def test_a_ledger_that_cannot_say_holds_the_message_back(pair: tuple[Node, Beta], line: str) -> None:
    node, beta = pair
    beta.in_ledger("msg_12345678", status(line, b"{}", "Retry-After: 77"))
    no = await refused(node, uncertain=True)
    assert (no.code, no.final, no.sent, no.retry_after) == ("peer_ledger_unreachable", False, False, 77)
    assert beta.visits == ["ledger"]


NOON = 1_767_355_200  # 2026-01-02T12:00:00Z


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("999999999", 86_400),
        ("Fri, 02 Jan 2026 12:02:00 GMT", 120),
        ("Fri, 02 Jan 2026 11:00:00 GMT", 0),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("9999999999999", None),
        ("Fri, 99 Jan 2026 12:02:00 GMT", None),
    ],
)
def test_retry_after_in_either_form(text: str, seconds: int | None) -> None:
    assert retry_after(text, NOON * 1000) == seconds


# --- two nodes ----------------------------------------------------------------------------------------------------

Start = Callable[..., Awaitable[tuple[RunningNode, RunningNode]]]


async def queued(alpha: RunningNode, **letter: Any) -> str:
    parts = {"sender": alpha.agent(), "recipient": BETA, "conversation": "c1", "kind": "query", "body": {"text": "hi"}}
    found: str = await alpha.kernel.database.run(queue_message, alpha.node, Letter(**(parts | letter)))
    return found


async def test_two_nodes_exchange_and_their_ledgers_join(two_nodes: Start) -> None:
    alpha, beta = await two_nodes(facets=TWO)
    message_id = await queued(alpha)
    standing = await send_message(alpha.node, message_id)
    async with asyncio.timeout(10):
        while not standing.ok:
            await asyncio.sleep(0.05)
            standing = await send_message(alpha.node, message_id)
    assert standing.response_verified
    assert isinstance(standing.response, dict)
    assert standing.response["body"]["echo"] == {"text": "hi"}
    sent = (await alpha.get(f"/oip/ledger?msg={message_id}")).json()["records"][0]
    got = (await beta.get(f"/oip/ledger?msg={message_id}")).json()["records"][0]
    assert (sent["kind"], got["kind"]) == ("FED_SEND", "FED_INBOX")
    for name in ("msg_id", "body_sha256", "response_id", "response_body_sha256"):
        assert sent[name] == got[name], name
    thread = (await alpha.get("/oip/conversation?id=c1")).json()["conversation"]
    assert [each["kind"] for each in thread["messages"]] == ["query", "result"]
    assert thread["state"] == "closed"


async def test_many_messages_arrive_each_once(two_nodes: Start) -> None:
    alpha, beta = await two_nodes(facets=TWO)
    ids = [await queued(alpha, conversation=f"c{n}", body={"n": n}) for n in range(30)]
    standings = []
    async with asyncio.timeout(30):
        for message_id in ids:
            while not (standing := await send_message(alpha.node, message_id)).ended_at:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            standings.append(standing)
    assert all(each.response_verified for each in standings), [each.detail for each in standings]
    rows = await beta.kernel.database.read(
        lambda r: r.all("select msg_id from inbox_exchange where direction = 'inbound'")
    )
    assert sorted(row.msg_id for row in rows) == sorted(ids)


async def test_a_node_without_the_facet_delivers_nothing(a_node: Callable[..., Awaitable[RunningNode]]) -> None:
    alone = await a_node(facets={"wellknown": {}, "inbox": {}})
    assert alone.node.transports == {}
    assert "deliver" not in alone.node.jobs
    assert alone.node.catalog.get("FED_SENT") is None
    assert orjson.loads((await alone.get("/health")).body)["facets"] == ["wellknown", "inbox"]
