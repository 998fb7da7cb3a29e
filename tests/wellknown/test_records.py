"""What is believed of a published document, and what spoils it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from deedbox.clock import utc_z
from deedbox.identity.keys import P256Pair
from deedbox.ports import AgentRecord
from deedbox_wellknown.records import Unresolved, read_document, read_record
from tests.wellknown.scene import BETA, document, entry, listed

OLD, NEW = P256Pair.generate(), P256Pair.generate()
NOW = 1_767_323_045_000
PAST, FUTURE = utc_z(NOW - 1000), utc_z(NOW + 1000)


def read(published: dict[str, Any], domain: str = "beta.example", now: int = NOW) -> AgentRecord:
    agent = f"node@{domain}"
    entries = read_document(document(published, domain=domain), domain)
    return read_record(entries[agent], agent, domain, now, development=False)


def reason(published: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(Unresolved) as failure:
        read(published)
    assert not failure.value.temporary
    return failure.value.reason, failure.value.detail


def test_the_entry_is_found_whatever_its_spelling() -> None:
    record = read(entry("Node@Beta.EXAMPLE", OLD))
    assert record == AgentRecord(BETA, OLD.public, "https://beta.example/oip/inbox")


def test_the_first_entry_of_an_id_counts_and_strange_ones_are_passed_over() -> None:
    text = orjson.dumps({"protocol": "oip-message/1", "agents": [7, {}, {"id": 1}, entry(BETA, OLD), entry(BETA, NEW)]})
    assert read_document(text, "beta.example") == {BETA: entry(BETA, OLD)}
    assert read_document(b'{"protocol":"oip-message/1","agents":{}}', "beta.example") == {}


@pytest.mark.case("oip:W17")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[]", "the document's protocol is not oip-message/1"),
        (b"{}", "the document's protocol is not oip-message/1"),
        (document(entry(BETA, OLD), protocol="oip-message/2"), "the document's protocol is not oip-message/1"),
        (document(entry(BETA, OLD), domain="gamma.example"), "the document speaks for another domain"),
        (document(entry(BETA, OLD), domain=["beta.example"]), "the document speaks for another domain"),
        (document(entry(BETA, OLD), domain=None), "the document speaks for another domain"),
    ],
)
def test_a_document_of_another_protocol_or_domain_is_not_believed(body: bytes, why: str) -> None:
    with pytest.raises(Unresolved) as failure:
        read_document(body, "beta.example")
    assert failure.value.reason == f"well_known_unreachable:{why}"


def test_a_reason_has_at_most_eighty_characters_of_explanation() -> None:
    with pytest.raises(Unresolved) as failure:
        read_document(b"\xff" * 10, "beta.example")
    assert len(failure.value.reason) <= len("well_known_unreachable:") + 80


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"inbox": None}, "the record lacks its key or its inbox"),
        ({"public_key_jwk": None}, "the record lacks its key or its inbox"),
        ({"public_key_jwk": {"kty": "EC", "crv": "P-256", "x": "A" * 43, "y": "A" * 43}}, "not a point of P-256"),
        ({"public_key_jwk": OLD.public.jwk | {"kty": "RSA"}}, "not a EC key on P-256"),
        ({"keys": [listed(OLD, not_after=PAST)]}, "the published key is past its window"),
    ],
)
def test_a_record_that_is_not_whole(change: dict[str, Any], why: str) -> None:
    assert reason(entry(BETA, OLD) | change) == ("agent_record_incomplete", why)


@pytest.mark.case("oip:W16")
@pytest.mark.parametrize(
    "inbox",
    [
        "https://gamma.example/oip/inbox",
        "https://notbeta.example/oip/inbox",
        "https://beta.example.evil.example/oip/inbox",
        "https://beta.example@gamma.example/oip/inbox",
        "https://beta.example:8443/oip/inbox",
        "https://127.0.0.1/oip/inbox",
        "http://beta.example/oip/inbox",
        "mailto:node@beta.example",
    ],
)
def test_an_inbox_lies_on_its_own_domain(inbox: str) -> None:
    assert reason(entry(BETA, OLD) | {"inbox": inbox})[0] == "agent_record_incomplete"


def test_an_inbox_may_lie_below_its_domain() -> None:
    assert read(entry(BETA, OLD) | {"inbox": "https://in.beta.example/oip"}).inbox == "https://in.beta.example/oip"


@pytest.mark.parametrize("member", ["public_key_jwk", "keys", "previous_keys"])
def test_a_private_key_in_it_spoils_the_record(member: str) -> None:
    private = OLD.private_jwk()
    leaked = private if member == "public_key_jwk" else [{"kid": "k", "public_key_jwk": private}]
    told = reason(entry(BETA, NEW) | {member: leaked})
    assert told == ("agent_record_incomplete", "the published key holds its private part")


@pytest.mark.case("oip:W13")
def test_further_keys_hold_within_their_windows() -> None:
    keys = [P256Pair.generate() for _ in range(4)]
    rings = {
        "keys": [
            listed(NEW, not_before=PAST, not_after=None),
            listed(keys[0], not_before=FUTURE),
            listed(keys[1], not_after=PAST),
            listed(keys[2], not_after="tomorrow"),
            {"kid": "k", "public_key_jwk": {"kty": "EC"}},
            "nonsense",
        ],
        "previous_keys": [listed(OLD, not_before=PAST, not_after=FUTURE)],
    }
    record = read(entry(BETA, NEW) | rings)
    assert record.valid_keys(NOW) == {NEW.public.thumbprint: NEW.public, OLD.public.thumbprint: OLD.public}
    assert OLD.public.thumbprint not in record.valid_keys(NOW + 1000)
    assert keys[0].public.thumbprint in record.valid_keys(NOW + 1000)


def test_only_so_many_further_keys_are_read() -> None:
    rings = [listed(OLD) | {"kid": str(number)} for number in range(17)]
    assert len(read(entry(BETA, NEW, keys=rings)).keys) == 16


@pytest.mark.parametrize("page", ["wellknown.json", "wellknown-peer.json"])
def test_the_examples_of_the_specification_are_read(page: str, vectors: Any) -> None:
    published = vectors(page)
    entries = read_document(orjson.dumps(published), published["domain"])
    for agent, each in entries.items():
        record = read_record(each, agent, published["domain"], NOW, development=False)
        assert record.key.jwk == each["public_key_jwk"]
