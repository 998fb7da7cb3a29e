"""A receipt is read again with its proof, and what an entry said can go while the chain stands (kernel-notes §5.4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deedbox import Intent, OwnerKey, Reply
from deedbox.ledger.proof import TlogProof
from deedbox.ledger.sealing import keep_sealed
from deedbox.testing import RunningNode
from deedbox.web import JsonPhrasing

Start = Callable[..., Awaitable[RunningNode]]


async def ask(here: RunningNode, key: str, arguments: dict[str, Any], *, owner: bool = False) -> Reply:
    intent = Intent("test", here.kernel.clock.now(), key, arguments, JsonPhrasing())
    if owner:
        intent.credential = OwnerKey(here.owner_key)
    return await here.node.govern(intent)


async def an_entry(here: RunningNode) -> int:
    """An entry with a payload of its own."""

    def append(unit: Any) -> int:
        seq = here.node.ledger.entry(unit, "executed", "owner", {"said": "something private"}).seq
        return int(seq or 0)

    return await here.node.database.run(append)


async def test_a_receipt_has_its_proof_as_soon_as_there_is_one(a_node: Start) -> None:
    here = await a_node()
    seq = await an_entry(here)
    before = await ask(here, "RECEIPT", {"id": f"entry:{seq}"})
    await keep_sealed(here.node, whole=True)
    after = await ask(here, "RECEIPT", {"id": f"entry:{seq}"})
    assert before.outcome.value["note"] == "not_yet_signed"
    assert TlogProof.parse(after.outcome.value["proof"]).index == seq - 1


async def test_an_event_is_proven_by_way_of_its_batch(a_node: Start) -> None:
    here = await a_node()
    first = await ask(here, "RECEIPT", {"id": "entry:99"})
    assert first.receipt is not None
    waiting = await ask(here, "RECEIPT", {"id": first.receipt.id})
    await keep_sealed(here.node, whole=True)
    sealed = await ask(here, "RECEIPT", {"id": first.receipt.id})
    assert waiting.outcome.value["note"] == "not_yet_sealed"
    assert sealed.outcome.value["leaf"] == first.receipt.leaf.hex()


@pytest.mark.case("fed:D8")
async def test_redaction_deletes_words_and_salt_and_says_so(a_node: Start) -> None:
    here = await a_node()
    seq = await an_entry(here)
    reply = await ask(here, "LEDGER_REDACT", {"seq": seq, "rule": "erasure", "why": "asked for"}, owner=True)

    def left(unit: Any) -> tuple[int, str]:
        payloads = unit.one("select count(*) as n from ledger_payload where seq = :seq", seq=seq).n
        header = bytes(unit.one("select header from ledger_entry where seq = :seq", seq=seq + 1).header)
        return int(payloads), header.decode()

    payloads, header = await here.node.database.run(left)
    assert reply.outcome.ok
    assert payloads == 0
    assert '"kind":"redact"' in header
    assert f'"refs":["entry:{seq}"]' in header


@pytest.mark.parametrize(("owner", "code"), [(False, "not_allowed"), (True, "already_redacted")])
async def test_a_redaction_is_the_owners_and_happens_once(a_node: Start, owner: bool, code: str) -> None:
    here = await a_node()
    seq = await an_entry(here)
    asked = {"seq": seq, "rule": "erasure", "why": "asked for"}
    await ask(here, "LEDGER_REDACT", asked, owner=owner)
    again = await ask(here, "LEDGER_REDACT", asked, owner=owner)
    assert again.outcome.code == code


async def test_what_a_batch_says_is_not_redacted(a_node: Start) -> None:
    here = await a_node()
    await ask(here, "RECEIPT", {"id": "entry:99"})
    await keep_sealed(here.node, whole=True)
    reply = await ask(here, "LEDGER_REDACT", {"seq": 1, "rule": "erasure", "why": "x"}, owner=True)
    assert reply.outcome.code == "not_redactable"


@pytest.mark.case("fed:D9")
async def test_the_same_refusal_twice_is_two_facts(a_node: Start) -> None:
    here = await a_node()
    asked = {"seq": 999, "rule": "erasure", "why": "the same words"}
    one = await ask(here, "LEDGER_REDACT", asked, owner=True)
    other = await ask(here, "LEDGER_REDACT", asked, owner=True)
    assert one.receipt is not None
    assert other.receipt is not None
    assert (one.receipt.seq, other.receipt.seq) == (1, 2)
    assert one.receipt.leaf != other.receipt.leaf
