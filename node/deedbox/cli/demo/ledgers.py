"""Step 8 of the demo: both ledgers verified offline, a run proven, the two joined, and a flipped byte found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deedbox.cli.books import copy_ledger, own_book, reading
from deedbox.cli.demo.scene import Player, Scene
from deedbox.ledger.checkpoint import SignedCheckpoint, VerifierKey
from deedbox.ledger.proof import TlogProof
from deedbox.ledger.proving import prove_entry
from deedbox.ledger.records import Entries, Events, SqliteFile
from deedbox.ledger.verify import State, Trust, Verdict, Witnessed, verify
from deedbox.refusals import Refusal


def prove(scene: Scene, folder: Path) -> None:
    """Everything that can be known when neither node runs any more."""
    report = scene.report
    report.title("4  Both ledgers, offline")
    for player in (scene.alpha, scene.beta):
        report.proving("ledger", lambda player=player: _verified(scene, player))  # type: ignore[misc]
    report.proving("inclusion", lambda: _included(scene))
    report.proving("joined", lambda: _joined(scene))
    report.proving("flipped", lambda: _flipped(scene, folder))


def _key(player: Player) -> VerifierKey:
    return VerifierKey.parse(player.made.ledger_key)


def _verified(scene: Scene, player: Player) -> None:
    """From the first entry, and as long as the head that the other domain was given."""
    domain, key = player.node.domain, _key(player)
    kept = SignedCheckpoint.parse(scene.kept[domain])
    if not kept.signers((key,)):
        raise Refusal("unknown_signer", 403, f"the head kept of {domain} was not signed by its key")
    other = scene.beta if player is scene.alpha else scene.alpha
    head = Witnessed(kept.checkpoint.size, kept.checkpoint.root, other.node.domain)
    with own_book(player.made.settings) as source:
        verdict = verify(source, Trust(domain, (key,), heads=(head,), payload_form=True))
    counts = verdict.counts
    whole = verdict.state is State.WITNESSED and not counts.events_unsealed
    whole &= counts.checkpoints == counts.checkpoints_signed > 0
    detail = f"{verdict}, {counts.events} events in {counts.batches} batches; {head.who} kept a head of {head.size}"
    scene.report.check(f"ledger of {domain} verified", whole, detail)


def _included(scene: Scene) -> None:
    """Alpha's proof of the run, checked with nothing but beta's receipt and alpha's published key."""
    seq, leaf = scene.receipt["seq"], bytes.fromhex(scene.receipt["leaf"])
    with reading(scene.alpha.made.settings) as reader:
        text = str(prove_entry(reader, seq).proof)
    proof = TlogProof.parse(text)
    head = proof.verify(leaf, scene.alpha.node.domain, (_key(scene.alpha),))
    elsewhere = Refusal("proof_fails")
    try:
        proof.verify(bytes(32), scene.alpha.node.domain, (_key(scene.alpha),))
        elsewhere = Refusal("no_refusal")
    except Refusal as refusal:
        elsewhere = refusal
    holds = proof.index == seq - 1 and elsewhere.code == "proof_fails"
    detail = f"entry {seq} of {head.size}, {len(proof.path)} hashes to the signed root"
    scene.report.check("inclusion proof holds", holds, detail)


def _joined(scene: Scene) -> None:
    """What one says it sent is what the other says it got, and so are the replies, message by message."""
    books = {player.node.domain: dict(_told(player)) for player in (scene.alpha, scene.beta)}
    torn: list[str] = []
    joined = 0
    for sender, receiver in ((scene.alpha, scene.beta), (scene.beta, scene.alpha)):
        for message in sender.sent:
            there = books[sender.node.domain].get(("outbound", message), {})
            here = books[receiver.node.domain].get(("inbound", message), {})
            asked = there.get("body_sha256") == here.get("inputs_sha256")
            answered = there.get("response_body_sha256") == here.get("output_sha256")
            joined += bool(there and here and asked and answered)
            torn += [] if there and here and asked and answered else [message]
    detail = f"{joined} messages by id, body hash and reply hash" if not torn else f"not joined: {', '.join(torn)}"
    scene.report.check("ledgers join", joined > 0 and not torn, detail)


def _told(player: Player) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """What a ledger says of each message, by direction and id."""
    with own_book(player.made.settings) as source:
        for record in source.records():
            texts = [row[4] for row in record.rows] if isinstance(record, Entries) else []
            texts += [row[3] for row in record.rows] if isinstance(record, Events) else []
            for said in (json.loads(text) for text in texts if text):
                if "msg" in said:
                    yield (said.get("direction", "inbound"), said["msg"]), said


def _flipped(scene: Scene, folder: Path) -> None:
    """One bit of one byte, in a copy, where the run is told."""
    seq, copy = scene.receipt["seq"], folder / "tampered.db"
    copy_ledger(scene.alpha.made.settings.node.database, copy)
    with reading(scene.alpha.made.settings) as reader:
        told = bytes(reader.all("select payload from ledger_payload where seq = :seq", seq=seq)[0].payload)
    before = _verdict(copy)
    content = bytearray(copy.read_bytes())
    at = content.index(told) + len(told) // 2
    content[at] ^= 1
    copy.write_bytes(content)
    after = _verdict(copy)
    found = before.good and after.state is State.BROKEN and after.first_bad == seq
    scene.report.check("one flipped byte is found", found, f"the verifier says: {after.reason}")


def _verdict(path: Path) -> Verdict:
    return verify(SqliteFile(path))
