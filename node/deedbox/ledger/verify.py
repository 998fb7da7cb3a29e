"""The offline verifier: is this ledger whole, in order, and as long as others saw it? In constant memory, from a file.

kernel-notes §5.3; RFC 9162 for the tree, C2SP tlog-checkpoint and tlog-cosignature for its signed heads. It imports
nothing but the standard library, cryptography and rfc8785, so that it can be read and run apart from the node.

A ledger that agrees with itself may still have been cut at its end or rewritten from some point on: only a head that
somebody else kept can show that (fed:D3). Without one the best answer is "consistent, length unproven".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from deedbox.ledger.checkpoint import LedgerCheckpoint, SignedCheckpoint, VerifierKey, WitnessPolicy
from deedbox.ledger.merkle import RightEdge
from deedbox.ledger.records import Entries, Events, Note, Record, Source
from deedbox.ledger.replay import BadEntry, Chain
from deedbox.ledger.sealed import SealedEvents
from deedbox.refusals import Refusal

Progress = Callable[[int], None]
"""Called with the number of entries checked so far."""


class State(StrEnum):
    """What the verifier concludes."""

    WITNESSED = "valid to a witnessed size"
    UNPROVEN = "consistent, length unproven"
    TRUNCATED = "truncated"
    FORKED = "forked"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Witnessed:
    """A head of this ledger that was kept outside of it; ``who`` is for the report."""

    size: int
    root: bytes
    who: str = "witness"


@dataclass(frozen=True, slots=True)
class Trust:
    """What the person verifying knows beforehand, from outside the ledger.

    ``keys``: the log's own. ``witnesses``: who may vouch for a checkpoint by cosigning it. ``heads``: heads kept by
    peers or found in receipts. ``payload_form``: also require payloads to be canonical JSON (slow).
    """

    origin: str | None = None
    keys: tuple[VerifierKey, ...] = ()
    witnesses: WitnessPolicy | None = None
    heads: tuple[Witnessed, ...] = ()
    payload_form: bool = False


@dataclass(slots=True)
class Counts:
    """What was seen; ``payloads``, ``names`` (actors and subjects) and ``events`` are those opened and found right."""

    entries: int = 0
    payloads: int = 0
    payloads_absent: int = 0
    names: int = 0
    batches: int = 0
    batches_without_events: int = 0
    events: int = 0
    events_absent: int = 0
    events_unsealed: int = 0
    checkpoints: int = 0
    checkpoints_signed: int = 0
    checkpoints_cosigned: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer.

    ``size`` counts the entries found right and ``root`` is theirs (``None`` if broken); for a fork, they are the size
    of which others hold another root, and ours. ``first_bad`` is the first entry that is wrong or missing, ``None`` if
    it cannot be told.
    """

    state: State
    size: int
    root: bytes | None
    witnessed_size: int | None
    first_bad: int | None
    reason: str
    counts: Counts
    not_checked: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Nothing wrong was found; whether that is enough depends on ``state`` and ``not_checked``."""
        return self.state in (State.WITNESSED, State.UNPROVEN)

    def __str__(self) -> str:
        if self.state is State.WITNESSED:
            return f"{self.state} ({self.witnessed_size} of {self.size} entries)"
        if self.state is State.TRUNCATED:
            return f"{self.state} (witness saw {self.witnessed_size}, there are {self.size})"
        return f"{self.state}: {self.reason}" if self.reason else str(self.state)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``: plain values, hashes in hexadecimal."""
        return {
            "state": str(self.state),
            "ok": self.good,
            "size": self.size,
            "root": self.root.hex() if self.root else None,
            "witnessed_size": self.witnessed_size,
            "first_bad": self.first_bad,
            "reason": self.reason,
            "counts": asdict(self.counts),
            "not_checked": list(self.not_checked),
        }


def verify(source: Source, trust: Trust | None = None, progress: Progress | None = None) -> Verdict:
    """Read a ledger from its first entry and say what holds. Never raises for what stands in the ledger."""
    verification = _Verification(source, trust or Trust())
    try:
        for record in source.records():
            verification.take(record)
            if progress:
                progress(verification.tree.size)
        verification.finish()
    except _Finding as finding:
        return verification.verdict(finding.state, finding.reason, finding.first_bad, finding.size)
    except BadEntry as bad:
        return verification.verdict(State.BROKEN, str(bad), bad.seq)
    except Refusal as refusal:
        return verification.verdict(State.BROKEN, refusal.detail)
    return verification.conclusion()


class _Finding(Exception):
    """Something that settles the verdict; ``size`` is that of the head which settled it."""

    def __init__(self, state: State, reason: str, first_bad: int | None = None, size: int | None = None) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.first_bad = first_bad
        self.size = size


@dataclass(slots=True)
class _Verification:
    """One pass over a source."""

    source: Source
    trust: Trust
    tree: RightEdge = field(default_factory=RightEdge)
    counts: Counts = field(default_factory=Counts)
    chain: Chain = field(init=False)
    sealed: SealedEvents = field(init=False)
    heads: list[Witnessed] = field(init=False)
    origin: str | None = field(init=False)
    proven: int = 0
    ahead: LedgerCheckpoint | None = None

    def __post_init__(self) -> None:
        self.chain = Chain(payload_form=self.trust.payload_form)
        self.sealed = SealedEvents(self.trust.payload_form)
        self.heads = sorted(self.trust.heads, key=lambda head: head.size, reverse=True)
        self.origin = self.trust.origin or self.source.origin

    @property
    def keys(self) -> tuple[VerifierKey, ...]:
        return self.trust.keys or self.source.keys

    def take(self, record: Record) -> None:
        if isinstance(record, Events):
            self.sealed.take(record.rows)
            return
        self.sealed.close()
        if isinstance(record, Note):
            self._take_note(record.text)
        else:
            self._take_entries(record)

    def _take_entries(self, record: Entries) -> None:
        leaves = self.chain.replay(record.rows)
        if self.ahead:
            reason = f"the checkpoint for {self.ahead.size} entries stands before entry {self.tree.size + 1}"
            raise _Finding(State.BROKEN, reason)
        grown, first = self.tree.size, self.tree.size
        while self.heads and self.heads[-1].size <= first + len(leaves):
            head = self.heads.pop()
            self.tree.extend(leaves[grown - first : head.size - first])
            grown = self.tree.size
            self._compare(head.size, head.root, head.who, believed=True)
        self.tree.extend(leaves[grown - first :])
        if record.ends_in_batch:
            self.sealed.open(self.tree.size, (*record.rows[-1], None, None)[4])

    def _compare(self, size: int, root: bytes, who: str, *, believed: bool) -> None:
        """Hold a head against the entries up to its size; ``believed`` if it was kept or cosigned by others."""
        if self.tree.root() == root:
            self.proven = max(self.proven, size if believed else 0)
            return
        since = f"after entry {self.proven}" if self.proven else "from some entry on"
        raise _Finding(State.FORKED, f"{who} has another root for {size} entries: rewritten {since}", size=size)

    def _take_note(self, text: str) -> None:
        signed = SignedCheckpoint.parse(text)
        checkpoint = signed.checkpoint
        self.origin = self.origin or checkpoint.origin
        if checkpoint.origin != self.origin:
            raise _Finding(State.BROKEN, f"a checkpoint of {checkpoint.origin} in the ledger of {self.origin}")
        by_log = bool(signed.signers(self.keys))
        cosigned = self.trust.witnesses is not None and self.trust.witnesses.satisfied(signed)
        self.counts.checkpoints += 1
        self.counts.checkpoints_signed += by_log
        self.counts.checkpoints_cosigned += cosigned
        if checkpoint.size > self.tree.size:
            self.ahead = checkpoint if not self.ahead or self.ahead.size < checkpoint.size else self.ahead
        elif checkpoint.size < self.tree.size:
            reason = f"the checkpoint for {checkpoint.size} entries stands after entry {self.tree.size}"
            raise _Finding(State.BROKEN, reason)
        elif by_log or cosigned:
            self._compare(checkpoint.size, checkpoint.root, "a signed checkpoint", believed=cosigned)
        elif self.tree.root() != checkpoint.root:
            raise _Finding(State.BROKEN, f"an unsigned checkpoint has another root for {checkpoint.size} entries")

    def finish(self) -> None:
        self.sealed.close()
        size = self.tree.size
        seen = [(head.size, head.who) for head in self.heads]
        if self.ahead:
            seen.append((self.ahead.size, "a checkpoint in the ledger"))
        for head in [head for head in self.heads if head.size == size]:
            self._compare(size, head.root, head.who, believed=True)
        longest, who = max(seen, default=(0, ""))
        if longest > size:
            reason = f"{who} saw {longest} entries, of which {longest - size} are gone from the end"
            raise _Finding(State.TRUNCATED, reason, first_bad=size + 1, size=longest)

    def conclusion(self) -> Verdict:
        if self.proven:
            return self.verdict(State.WITNESSED, "")
        return self.verdict(State.UNPROVEN, "no head kept or cosigned by others was given")

    def verdict(self, state: State, reason: str, first_bad: int | None = None, size: int | None = None) -> Verdict:
        counts, opened, sealed = self.counts, self.chain.opened, self.sealed
        counts.entries = self.tree.size if state is State.FORKED else self.chain.size
        counts.payloads, counts.payloads_absent, counts.names = opened.payloads, opened.absent, opened.names
        counts.batches, counts.batches_without_events = sealed.batches, sealed.batches_without_events
        counts.events, counts.events_absent, counts.events_unsealed = sealed.opened, sealed.absent, sealed.unsealed
        witnessed = size or self.proven or None
        gaps = tuple(self._not_checked(state))
        root = None if state is State.BROKEN else self.tree.root()
        return Verdict(state, counts.entries, root, witnessed, first_bad, reason, counts, gaps)

    def _not_checked(self, state: State) -> Iterator[str]:
        counts = self.counts
        if state not in (State.WITNESSED, State.UNPROVEN):
            yield f"anything after entry {counts.entries}"
        if not self.proven:
            yield "the length: entries cut off the end would not show without a head kept by others"
        elif self.proven < self.tree.size:
            yield f"the length beyond entry {self.proven}: what follows is newer than the newest witnessed head"
        if not counts.checkpoints:
            yield "signed heads: there are no checkpoints"
        elif unsigned := counts.checkpoints - counts.checkpoints_signed:
            yield f"who signed {unsigned} of {counts.checkpoints} checkpoints: it was no known key of the log"
        if self.source.keys and not self.trust.keys:
            yield "who the log's keys belong to: they were taken from the export itself"
        if counts.checkpoints and not self.trust.witnesses:
            yield "cosignatures: no witnesses were named"
        if counts.payloads_absent:
            yield f"{counts.payloads_absent} payloads: redacted or left out"
        if not self.trust.payload_form:
            yield "whether payloads and events are canonical JSON, beyond being what was committed to"
        if counts.batches_without_events:
            yield f"the events of {counts.batches_without_events} of {counts.batches} batches: not shown"
        if counts.events_absent:
            yield f"the content of {counts.events_absent} events: only their leaves are there"
        if counts.events_unsealed:
            yield f"{counts.events_unsealed} events that no batch has sealed yet"
        yield "actors and subjects behind their commitments, except where shown"
        yield "signatures inside payloads, and whether the times are true"
