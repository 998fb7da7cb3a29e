"""Whether a domain can be found, and found again after its peer changed a key (OIP 1.2 §7)."""

from __future__ import annotations

import re
from typing import cast
from urllib.parse import urlsplit

from deedbox_conformance import wire
from deedbox_conformance.clause import Chapter, NotClaimed, expect
from deedbox_conformance.clauses import scenes
from deedbox_conformance.probe import Probe, read_discovery
from deedbox_conformance.wire import Json

chapter = Chapter("OIP-DISC")

MAX_SECONDS, MAX_CHARACTERS = 8.0, 262_144


def _agents(document: dict[str, Json]) -> list[dict[str, Json]]:
    entries = document.get("agents")
    return [cast("dict[str, Json]", entry) for entry in (entries if isinstance(entries, list) else [])]


@chapter.must("01", "`GET /.well-known/oip.json` answers 200 with JSON whose `protocol` is `oip-message/1`.", "§7.1")
async def published(probe: Probe) -> None:
    answer = await probe.scene(read_discovery)
    expect(answer.status == 200, f"HTTP {answer.status}")
    expect(answer.headers.get("content-type", "").startswith("application/json"), "the content type is not JSON")
    protocol = answer.members().get("protocol")
    expect(protocol == wire.PROTOCOL, f"protocol is {protocol!r}")


@chapter.must("02", "Every agent has an `id` of this domain, a `public_key_jwk` and an `inbox`; there is one.", "§7.1")
async def usable_agents(probe: Probe) -> None:
    entries = _agents(await probe.document())
    expect(entries, "`agents` is empty")
    for entry in entries:
        name = str(entry.get("id"))
        whole = isinstance(entry.get("public_key_jwk"), dict) and isinstance(entry.get("inbox"), str)
        expect(whole, f"the record of {name} is incomplete")
        expect(name.lower().endswith(f"@{probe.domain}"), f"{name} is not an agent of {probe.domain}")


@chapter.must("03", "A published key is a point of P-256: exactly `kty`, `crv`, `x`, `y`, and never `d`.", "§3.2")
async def public_keys(probe: Probe) -> None:
    for agent in await probe.agents():
        expect("d" not in agent.key, f"{agent.id} publishes its private key")
        expect(set(agent.key) == {"kty", "crv", "x", "y"}, f"the key of {agent.id} has members {sorted(agent.key)}")
        try:
            wire.public_key(agent.key)
        except ValueError as problem:
            expect(False, f"the key of {agent.id} is no P-256 key: {problem}")


@chapter.must("04", "`domain` is the domain that was asked.", "§7.1, §7.5")
async def own_domain(probe: Probe) -> None:
    domain = (await probe.document()).get("domain")
    expect(domain == probe.domain, f"domain is {domain!r}")


@chapter.must("05", "`inbox` is an https URL on the same domain or below it.", "§7.5")
async def own_inbox(probe: Probe) -> None:
    for agent in await probe.agents():
        inbox = urlsplit(agent.inbox)
        host = (inbox.hostname or "").lower()
        at_home = host == probe.domain or host.endswith(f".{probe.domain}")
        expect(inbox.scheme == "https" and at_home, f"the inbox of {agent.id} is {agent.inbox}")


@chapter.must("06", "`ledger` and `spec` are URLs that answer 200 with JSON.", "§7.1")
async def linked_documents(probe: Probe) -> None:
    document = await probe.document()
    for name in ("ledger", "spec"):
        answer = await probe.request("GET", str(document.get(name)))
        expect(answer.status == 200, f"{name} answers HTTP {answer.status}")
        answer.members()


@chapter.must("07", "Public documents carry `access-control-allow-origin: *`.", "§1.5, §7.1")
async def readable_in_browsers(probe: Probe) -> None:
    answers = [await probe.scene(read_discovery), await probe.get("/oip/inbox"), await scenes.ledger(probe, limit="1")]
    for answer in answers:
        allowed = answer.headers.get("access-control-allow-origin")
        expect(allowed == "*", f"{answer.named()} allows {allowed}")


@chapter.should("08", "The discovery document says `cache-control: public, max-age=…` and has an `ETag`.", "§7.1")
async def cacheable(probe: Probe) -> None:
    await probe.document()
    headers = (await probe.scene(read_discovery)).headers
    control = headers.get("cache-control", "")
    expect("public" in control and re.search(r"max-age=\d+", control), f"cache-control is {control!r}")
    expect(headers.get("etag"), "there is no ETag")


@chapter.must("09", "The discovery document comes within 8 s and is at most 262144 characters long.", "§7.3, §30.15")
async def small_and_quick(probe: Probe) -> None:
    await probe.document()
    answer = await probe.scene(read_discovery)
    expect(answer.seconds < MAX_SECONDS, f"it took {answer.seconds:.1f} s")
    expect(len(answer.body) <= MAX_CHARACTERS, f"it has {len(answer.body)} bytes")


@chapter.must("10", "Where `keys` is published, the newest key valid now is also `public_key_jwk`.", "§7.2", "node")
async def newest_key(probe: Probe) -> None:
    rings = [(entry, entry["keys"]) for entry in _agents(await probe.document()) if isinstance(entry.get("keys"), list)]
    if not rings:
        raise NotClaimed("no agent publishes `keys`")
    now = wire.utc_z(wire.now_ms())
    for entry, ring in rings:
        keys = [key for key in cast("list[dict[str, Json]]", ring) if _valid(key, now)]
        expect(keys, f"no key of {entry.get('id')} is valid now")
        newest = max(keys, key=lambda key: str(key.get("not_before")))
        same = newest.get("public_key_jwk") == entry.get("public_key_jwk")
        expect(same, f"the newest key of {entry.get('id')} is not its public_key_jwk")


def _valid(key: dict[str, Json], now: str) -> bool:
    """Whether *now* lies between the key's bounds; either may be absent."""
    opens, ends = key.get("not_before"), key.get("not_after")
    return (not isinstance(opens, str) or opens <= now) and (not isinstance(ends, str) or now < ends)


@chapter.must("11", "A sender's key changed inside the cache window is found by one refetch.", "§7.4, §25 N12", "node")
async def rotation(probe: Probe) -> None:
    peer = probe.peer
    before = await scenes.query_as(probe, peer.rotating)
    expect(before.body.get("sender_verified") is True, f"before the change {before.told()}")
    peer.rotate(peer.rotating)
    after = await scenes.query_as(probe, peer.rotating)
    expect(after.body.get("sender_verified") is True, f"with the new key {after.told()}")


CLAUSES = chapter.clauses
