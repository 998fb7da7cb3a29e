"""Events held against the batches that sealed them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deedbox.ledger.replay import BadEntry
from deedbox.ledger.sealed import SealedEvents
from deedbox.ledger.verify import State
from tests.kernel.ledger.paper import Paper, check

Spoil = Callable[[Paper], object]

BAD_EVENTS: dict[str, Spoil] = {
    "altered": lambda p: setattr(p.events[4], "event", b"{}"),
    "altered with its leaf": lambda p: vars(p.events[4]).update(event=None, leaf=bytes(32)),
    "left out": lambda p: p.events.pop(4),
    "first left out": lambda p: p.events.pop(0),
    "last left out": lambda p: p.events.pop(19),
    "without salt": lambda p: setattr(p.events[4], "salt", None),
    "without leaf": lambda p: vars(p.events[4]).update(event=None, leaf=None),
}


@pytest.mark.parametrize("spoil", BAD_EVENTS.values(), ids=BAD_EVENTS)
def test_the_batch_of_a_bad_event_is_named(paper: Paper, path: Path, spoil: Spoil) -> None:
    spoil(paper)
    verdict = check(paper, path)
    assert (verdict.state, verdict.first_bad) == (State.BROKEN, 61)


def test_events_without_content_count_by_their_leaves(paper: Paper, path: Path) -> None:
    for event in paper.events[:3]:
        event.event = event.salt = None
    verdict = check(paper, path)
    assert verdict.good
    assert (verdict.counts.events, verdict.counts.events_absent) == (22, 3)


def test_batches_whose_events_are_not_shown(paper: Paper, path: Path) -> None:
    del paper.events[:20]
    verdict = check(paper, path)
    assert verdict.good
    assert (verdict.counts.batches, verdict.counts.batches_without_events) == (2, 1)


def test_an_event_between_two_batches(path: Path) -> None:
    paper = Paper().happen(5)
    paper.seal()
    paper.happen(1)
    stray = paper.events.pop()
    paper.happen(3)
    for event in paper.events[5:]:
        event.id += 1
    paper.seal()
    assert check(paper, path).good
    paper.events.insert(5, stray)
    verdict = check(paper, path)
    assert (verdict.state, verdict.first_bad) == (State.BROKEN, 2)
    paper.entries[0].salt = paper.entries[0].payload = None  # now the stray one may belong to the batch not shown
    assert check(paper, path).good


def test_a_batch_that_seals_again_or_nothing_readable(path: Path) -> None:
    paper = Paper().happen(5)
    paper.seal()
    paper.sealed = 3
    paper.seal()
    assert check(paper, path).first_bad == 2
    paper = Paper().happen(5)
    paper.seal(schema="other")
    assert check(paper, path).first_bad == 1


@pytest.mark.parametrize("changed", [{"first": 2}, {"first": 0}, {"last": 6}, {"count": 4}])
def test_a_batch_that_says_another_range_or_count(path: Path, changed: dict[str, int]) -> None:
    paper = Paper().happen(5)
    paper.seal(**changed)
    verdict = check(paper, path)
    assert (verdict.state, verdict.first_bad) == (State.BROKEN, 1)


def test_events_sealed_out_of_order() -> None:
    paper = Paper().happen(5)
    entry = paper.seal()
    numbers = [1, 3, 2, 4, 5]
    rows = [(number, event.leaf, event.salt, event.event) for number, event in zip(numbers, paper.events, strict=True)]
    sealed = SealedEvents()
    sealed.open(1, entry.payload)
    with pytest.raises(BadEntry, match="not in the order of ids"):
        sealed.take(rows)


def test_an_unsealed_event_that_is_spoilt_belongs_to_no_entry(paper: Paper, path: Path) -> None:
    paper.events[-1].event = b"{}"
    verdict = check(paper, path)
    assert (verdict.state, verdict.first_bad) == (State.BROKEN, None)
