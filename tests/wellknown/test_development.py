"""Development nodes find and trust one another on one machine, and the switch reaches nothing beyond `.test`."""

from __future__ import annotations

import asyncio
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from deedbox.outgoing import Outgoing, OutgoingRefusal
from deedbox.refusals import Refusal
from deedbox_wellknown.development import Development, LocalAuthority, LoopbackResolver
from tests.kernel.https_peer import Authority, Names, Peer, Wire, plain, redirect, serving

ELSEWHERE = """
import sys
from pathlib import Path
from deedbox_wellknown.development import Development
development = Development("beta.test", Path(sys.argv[1]))
development.names.register("beta.test", int(sys.argv[2]))
print(development.authority.issue("beta.test"))
"""


async def test_two_nodes_find_and_trust_each_other_by_a_folder(tmp_path: Path) -> None:
    alpha, beta = Development("alpha.test", tmp_path), Development("beta.test", tmp_path)
    context = beta.authority.server_context("beta.test")
    async with serving(Peer({"/x": plain(b'{"a":1}')}), context) as peer:
        beta.names.register("beta.test", peer.port)
        async with Outgoing(resolver=Names(), development=alpha) as outgoing:
            assert (await outgoing.get_json("Beta.test", "/x")).body == b'{"a":1}'
            answer = await outgoing.post("beta.test", peer.port, "/x", b"{}")
            assert answer.status == 200
        assert peer.names == ["beta.test", "beta.test"]
        assert [request.headers["host"] for request in peer.requests] == ["beta.test", f"beta.test:{peer.port}"]


async def test_another_process_shares_names_and_authority(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    peer = Peer({"/x": plain()})
    here = Development("alpha.test", tmp_path)
    async with serving(peer, context):
        command = [sys.executable, "-c", ELSEWHERE, str(tmp_path), str(peer.port)]
        made = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        context.load_cert_chain(made.stdout.strip())
        async with Outgoing(resolver=Names(), development=here) as outgoing:
            assert (await outgoing.get_json("beta.test", "/x")).status == 200


def test_a_name_is_answered_for_while_its_node_serves(tmp_path: Path) -> None:
    development = Development("alpha.test", tmp_path)
    watcher = LoopbackResolver(tmp_path / "names")
    with development.serving(8443) as context:
        assert context.protocol is ssl.PROTOCOL_TLS_SERVER
        assert watcher.address("alpha.test") == ("127.0.0.1", 8443)
        watcher.register("alpha.test", 9443)  # a newer node of that name has taken over
    assert watcher.address("alpha.test") == ("127.0.0.1", 9443)
    watcher.withdraw("alpha.test")
    assert development.address("alpha.test") is None


def test_a_resolver_in_memory_keeps_names_to_itself() -> None:
    one, other = LoopbackResolver(), LoopbackResolver()
    one.register("Alpha.test", 8443)
    assert (one.address("alpha.test"), other.address("alpha.test")) == (("127.0.0.1", 8443), None)
    one.withdraw("alpha.test")
    assert one.address("alpha.test") is None


@pytest.mark.parametrize("name", ["alpha.example", "localhost", "127.0.0.1", "test", "a.test.example", "../x.test"])
def test_the_switch_is_for_test_names_only(name: str, tmp_path: Path) -> None:
    names, authority = LoopbackResolver(tmp_path / "names"), LocalAuthority(tmp_path / "authority")
    with pytest.raises(Refusal):
        names.register(name, 8443)
    with pytest.raises(Refusal):
        authority.issue(name)
    with pytest.raises(Refusal):
        Development(name, tmp_path)
    assert names.address(name) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"port": 0}', '{"port": "22"}', '{"port": 65536}', "\x00"])
def test_a_damaged_registration_is_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "alpha.test").write_text(content)
    assert LoopbackResolver(tmp_path).address("alpha.test") is None


@pytest.mark.case("fed:F1", "oip:W15")
async def test_loopback_stays_refused_for_every_other_name(tmp_path: Path) -> None:
    development = Development("alpha.test", tmp_path)
    async with serving(Peer(), development.authority.server_context("alpha.test")) as peer:
        development.names.register("alpha.test", peer.port)
        names = Names({"beta.example": [["127.0.0.1"]]})
        async with Outgoing(resolver=names, development=development) as outgoing:
            with pytest.raises(OutgoingRefusal, match="address_refused"):
                await outgoing.get_json("beta.example", "/x")
            with pytest.raises(OutgoingRefusal, match="address_refused"):
                await outgoing.post("beta.example", peer.port, "/x", b"{}")
            with pytest.raises(OutgoingRefusal, match="unreachable"):
                await outgoing.get_json("gamma.test", "/x")  # not registered: not looked up either
            with pytest.raises(Refusal, match="bad_domain"):
                await outgoing.get_json("127.0.0.1", "/x")
        assert names.asked == ["beta.example"]
        assert (peer.names, peer.requests) == ([], [])


async def test_without_the_switch_there_is_no_test_domain(tmp_path: Path) -> None:
    async with Outgoing(resolver=Names()) as outgoing:
        with pytest.raises(Refusal, match="bad_domain"):
            await outgoing.get_json("alpha.test", "/x")


async def test_a_registration_outside_this_machine_is_refused(tmp_path: Path) -> None:
    class Astray(Development):
        def address(self, host: str) -> tuple[str, int] | None:
            return ("192.168.1.1", 443)

    wire = Wire(0)
    async with Outgoing(resolver=Names(), development=Astray("alpha.test", tmp_path), connect=wire) as outgoing:
        with pytest.raises(OutgoingRefusal, match="address_refused"):
            await outgoing.get_json("alpha.test", "/x")
    assert wire.dialled == []


@pytest.mark.case("fed:F2")
async def test_a_public_node_cannot_redirect_into_this_machine(tmp_path: Path) -> None:
    public = Authority(tmp_path, ["beta.example"])
    development = Development("alpha.test", tmp_path)
    development.names.register("alpha.test", 9)
    async with serving(Peer({"/x": redirect("https://alpha.test/x")}), public.server()) as peer:
        wire = Wire(peer.port)
        trust = public.client()
        async with Outgoing(resolver=Names(), ssl_context=trust, development=development, connect=wire) as outgoing:
            with pytest.raises(OutgoingRefusal, match="redirect_refused"):
                await outgoing.get_json("beta.example", "/x")
        assert len(wire.dialled) == 1


async def test_the_local_authority_vouches_for_no_public_name(tmp_path: Path) -> None:
    development = Development("alpha.test", tmp_path)
    async with (
        serving(Peer({"/x": plain()}), development.authority.server_context("alpha.test")) as peer,
        Outgoing(resolver=Names(), development=development, connect=Wire(peer.port)) as outgoing,
    ):
        with pytest.raises(OutgoingRefusal, match="certificate"):
            await outgoing.get_json("alpha.example", "/x")


async def test_even_its_own_trust_believes_it_only_for_test_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = LocalAuthority(tmp_path)
    monkeypatch.setattr("deedbox_wellknown.development.development_name", str)  # as a thief of the key would do
    for name in ("alpha.example", "alpha.test"):
        async with serving(Peer(), authority.server_context(name)) as peer:
            connected = asyncio.open_connection("127.0.0.1", peer.port, ssl=authority.trust(), server_hostname=name)
            if name.endswith(".test"):
                _, writer = await connected
                writer.transport.abort()
            else:
                with pytest.raises(ssl.SSLCertVerificationError, match="subtree"):
                    await connected


def test_keys_are_for_their_owner_and_certificates_for_a_short_time(tmp_path: Path) -> None:
    authority = LocalAuthority(tmp_path / "authority")
    leaf = authority.issue("alpha.test")
    secrets = [file for file in leaf.parent.iterdir() if b"PRIVATE KEY" in file.read_bytes()]
    assert sorted(file.name for file in secrets) == ["alpha.test.pem", "authority.pem"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets} == {0o600}
    assert stat.S_IMODE(leaf.parent.stat().st_mode) == 0o700
    days = {name: life(leaf.parent / name) for name in ("alpha.test.pem", "trust.pem")}
    assert days == {"alpha.test.pem": 7, "trust.pem": 30}


def life(file: Path) -> int:
    return (x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc - datetime.now(UTC)).days + 1


class Years:
    """A clock some days ahead of the machine's."""

    def __init__(self, days: int) -> None:
        self.ahead = days * 86_400_000

    def now(self) -> int:
        return int(datetime.now(UTC).timestamp() * 1000) + self.ahead


def test_an_authority_is_shared_until_it_is_old_and_then_replaced(tmp_path: Path) -> None:
    first, same = LocalAuthority(tmp_path), LocalAuthority(tmp_path, Years(20))
    pem = first.certificate.read_bytes()
    trust = first.trust()
    same.issue("alpha.test")
    assert first.certificate.read_bytes() == pem
    assert first.trust() is trust
    LocalAuthority(tmp_path, Years(23)).issue("alpha.test")  # its leaf would outlive the authority
    assert (tmp_path / "trust.pem").read_bytes() != pem
    assert first.trust() is not trust
