"""Where the node connects to: the address that was judged, and never one of its own network."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deedbox.outgoing import Outgoing, OutgoingRefusal, SystemResolver
from deedbox.outgoing.addresses import public_address
from deedbox.refusals import Refusal
from tests.kernel.https_peer import PUBLIC, Authority, Names, Peer, Wire, plain, serving

DENIED = [
    *("::ffff:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "::127.0.0.1", "224.0.0.1"),
    *("ff02::1", "fec0::1", "192.88.99.1", "100.64.0.1", "168.63.129.16"),  # those eleven: row F3
    *("0.0.0.0", "10.1.2.3", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255"),
    *("192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1"),
    *("192.31.196.1", "192.52.193.1", "192.175.48.1", "100.100.100.200", "100.127.255.255", "239.255.255.255"),
    *("240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "100::1", "100:0:0:1::1"),
    *("2001::1", "2001:0:7f00:1::", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:a9fe:a9fe::"),
    *("2620:4f:8000::1", "3ffe::1", "3fff::1", "3fff:fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1"),
    *("fe80::1%lo", "2a00:1450::1%eth0", "febf::1", "feff::1", "ff0e::1", "4000::1", "64:ff9b::808:808", "localhost"),
    *("0x7f.1", "2130706433", "127.1", "0177.0.0.1", ""),
]
ALLOWED = {
    PUBLIC: PUBLIC,
    "8.8.8.8": "8.8.8.8",
    "100.63.255.255": "100.63.255.255",
    "172.32.0.1": "172.32.0.1",
    "192.0.1.1": "192.0.1.1",
    "223.255.255.255": "223.255.255.255",
    "::ffff:8.8.8.8": "8.8.8.8",
    "2001:200::1": "2001:200::1",
    "2606:4700::1111": "2606:4700::1111",
    "2a00:1450::1": "2a00:1450::1",
    "3fff:1000::1": "3fff:1000::1",
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, ["alpha.example"])


@pytest.fixture
async def peer(authority: Authority) -> AsyncIterator[Peer]:
    async with serving(Peer({"/x": plain()}), authority.server()) as peer:
        yield peer


@pytest.mark.case("fed:F1", "oip:W15")
async def test_the_address_that_was_judged_is_the_one_connected_to(authority: Authority, peer: Peer) -> None:
    names, wire = Names({"alpha.example": [[PUBLIC], ["127.0.0.1"]]}), Wire(peer.port)
    async with Outgoing(resolver=names, ssl_context=authority.client(), connect=wire) as outgoing:
        await outgoing.get_json("alpha.example", "/x")
        assert (names.asked, wire.dialled) == (["alpha.example"], [(PUBLIC, 443)])
        assert (peer.names, peer.requests[0].headers["host"]) == (["alpha.example"], "alpha.example")
        await outgoing.close()
        with pytest.raises(OutgoingRefusal, match="address_refused"):  # the next connection is judged anew
            await outgoing.get_json("alpha.example", "/x")
    assert wire.dialled == [(PUBLIC, 443)]


@pytest.mark.case("fed:F1", "oip:N9", "oip:W15")
async def test_no_packet_leaves_for_a_refused_address() -> None:
    accepted = 0

    def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    class Here:
        def address(self, host: str) -> tuple[str, int] | None:
            return None if host == "unknown.test" else ("127.0.0.1", port)

        def trust(self) -> ssl.SSLContext:
            return ssl.create_default_context()

    # Nothing stands between this client and the network but its own guard; with the development switch on as well.
    async with server, Outgoing(resolver=Names(otherwise=["127.0.0.1"]), development=Here()) as outgoing:
        with pytest.raises(OutgoingRefusal, match="address_refused"):
            await outgoing.get_json("alpha.example", "/x")
        with pytest.raises(OutgoingRefusal, match="address_refused") as caught:
            await outgoing.post("alpha.example", port, "/x", b"{}")
        with pytest.raises(OutgoingRefusal, match="unreachable"):
            await outgoing.get_json("unknown.test", "/x")
        await asyncio.sleep(0.05)
        assert (accepted, caught.value.sent) == (0, False)
        with pytest.raises(OutgoingRefusal, match="unreachable"):  # and the listener does count, when it may be reached
            await outgoing.get_json("known.test", "/x")
        assert accepted == 1


@pytest.mark.case("fed:F3", "oip:W15", "oip:N9")
@pytest.mark.parametrize("address", DENIED)
async def test_an_address_that_is_not_public_is_refused(address: str, authority: Authority) -> None:
    wire = Wire(0)
    names = Names(otherwise=[address])
    async with Outgoing(resolver=names, ssl_context=authority.client(), connect=wire) as outgoing:
        with pytest.raises(OutgoingRefusal) as caught:
            await outgoing.get_json("alpha.example", "/x")
    assert caught.value.code == "address_refused"
    assert address not in caught.value.detail or not address  # an answer never tells what the name resolves to here
    assert wire.dialled == []


@pytest.mark.case("fed:F3")
def test_a_public_address_is_taken_in_its_plain_form() -> None:
    assert {address: public_address(address) for address in ALLOWED} == ALLOWED


@pytest.mark.case("fed:F4")
@pytest.mark.parametrize("answers", [[PUBLIC, "10.0.0.1"], ["::1", PUBLIC], [PUBLIC] * 40 + ["127.0.0.1"]])
async def test_one_bad_address_spoils_the_name(answers: list[str], authority: Authority) -> None:
    wire = Wire(0)
    async with Outgoing(resolver=Names(otherwise=answers), ssl_context=authority.client(), connect=wire) as outgoing:
        with pytest.raises(OutgoingRefusal, match="address_refused"):
            await outgoing.get_json("alpha.example", "/x")
    assert wire.dialled == []


async def test_another_judged_address_is_tried_when_the_first_is_dead(authority: Authority, peer: Peer) -> None:
    wire = Wire(peer.port, dead=frozenset({"2606:4700::1111"}))
    names = Names(otherwise=["2606:4700::1111", PUBLIC])
    async with Outgoing(resolver=names, ssl_context=authority.client(), connect=wire) as outgoing:
        assert (await outgoing.get_json("alpha.example", "/x")).status == 200
    assert wire.dialled == [("2606:4700::1111", 443), (PUBLIC, 443)]
    assert names.asked == ["alpha.example"]


@pytest.mark.case("fed:F10", "fed:B11", "oip:N9")
@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "0x7f.1", "2130706433", "[::1]", "169.254.169.254", "localhost", "a.internal", "alpha.test"),
        *("legit-bank.example@attacker.example", "alpha.example:80", "alpha.example/x", "alpha.example#", ""),
    ],
)
async def test_what_is_no_domain_is_never_looked_up(host: str, authority: Authority) -> None:
    names, wire = Names(), Wire(0)
    async with Outgoing(resolver=names, ssl_context=authority.client(), connect=wire) as outgoing:
        with pytest.raises(Refusal, match="bad_domain"):
            await outgoing.get_json(host, "/x")
        with pytest.raises(Refusal, match="bad_domain"):
            await outgoing.post(host, 443, "/x", b"{}")
    assert (names.asked, wire.dialled) == ([], [])


@pytest.mark.case("oip:W15")
@pytest.mark.parametrize("port", [22, 80, 8443, 0, 65536])
async def test_only_port_443_is_gone_to(port: int, authority: Authority) -> None:
    names = Names()
    async with Outgoing(resolver=names, ssl_context=authority.client(), connect=Wire(0)) as outgoing:
        with pytest.raises(OutgoingRefusal, match="address_refused"):
            await outgoing.post("alpha.example", port, "/x", b"{}")
    assert names.asked == []


async def test_a_name_without_address_and_a_slow_one_are_told_apart(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Names):
        async def resolve(self, host: str, port: int) -> list[str]:
            if host == "beta.example":
                raise OSError("no such name")
            await asyncio.sleep(60)
            return []

    monkeypatch.setattr("deedbox.outgoing.destinations.RESOLVE_SECONDS", 0.05)
    async with Outgoing(resolver=Slow(), ssl_context=authority.client(), connect=Wire(0)) as outgoing:
        with pytest.raises(OutgoingRefusal, match="timed_out"):
            await outgoing.get_json("alpha.example", "/x")
        with pytest.raises(OutgoingRefusal, match="unreachable"):
            await outgoing.get_json("beta.example", "/x")
    async with Outgoing(resolver=Names(otherwise=[]), ssl_context=authority.client()) as outgoing:
        with pytest.raises(OutgoingRefusal, match="unreachable"):
            await outgoing.get_json("gamma.example", "/x")


async def test_the_machines_resolver_is_asked_for_the_whole_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def answer(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(2, 1, 6, "", (PUBLIC, port)), (10, 1, 6, "", ("2a00:1450::1", port, 0, 0)), (2, 1, 6, "", (PUBLIC, 1))]

    monkeypatch.setattr("socket.getaddrinfo", answer)
    assert await SystemResolver().resolve("alpha.example", 443) == [PUBLIC, "2a00:1450::1"]
    assert asked == ["alpha.example."]  # the root's dot: no search domain of this machine is appended
