"""Two nodes at work are killed again and again: nothing acknowledged is lost, and nothing runs twice.

``SOAK_KILLS`` says how often (200; 40 where ``CI`` is set), ``SOAK_SEED`` which moments: the seed of a run is printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.suites.soak import audit
from tests.suites.soak.homes import Home, Town, a_town
from tests.suites.soak.letters import Correspondence, Letter, Writer, correspond

KILLS = int(os.environ.get("SOAK_KILLS") or (40 if os.environ.get("CI") else 200))
SEED = int(os.environ.get("SOAK_SEED") or secrets.randbits(32))
WRITERS = 4
BETAS_PART = 5
"""Every so manieth death is beta's."""
SETTLED_WITHIN = 240.0
"""Seconds: a job that died with its worker is another's after one minute, and what waits to be sent may wait longer."""


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with a_town(tmp_path) as made:
        yield made


@pytest.mark.case("fed:G5", "fed:D7", "fed:C4")
async def test_nothing_acknowledged_is_lost_and_nothing_runs_twice(
    town: Town, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\nsoak: {KILLS} kills, SOAK_SEED={SEED}")
    began = time.monotonic()
    letters, kept = await tormented(town)
    await settled(town)
    await audit.acknowledged_is_found(town, letters)
    await asyncio.gather(town.alpha.stop(), town.beta.stop())
    audit.answers_agree(letters)
    audit.nothing_ran_twice(town.alpha, letters)
    audit.acts_are_closed(town.alpha)
    audit.claims_agree(town.alpha, letters)
    audit.uses_agree(town.alpha)
    audit.letters_arrived(town.alpha, town.beta, kept)
    verdicts = [await asyncio.to_thread(home.verified) for home in (town.alpha, town.beta)]
    with capsys.disabled():
        print(summary(town, letters, kept, time.monotonic() - began), [verdict["size"] for verdict in verdicts])


async def tormented(town: Town) -> tuple[list[Letter], Correspondence]:
    """Everybody writes, both die as often as was asked for, and live in the end."""
    rng = random.Random(SEED)
    betas = KILLS // BETAS_PART
    town.alpha.start()
    await town.alpha.ready()
    await town.probe.agent()  # from now on its key is known, also while it is down
    await town.alpha.kill()
    writer, over = Writer(town, random.Random(rng.getrandbits(64))), asyncio.Event()
    writing = [asyncio.create_task(writer.write()) for _ in range(WRITERS)]
    sending = asyncio.create_task(correspond(town, random.Random(rng.getrandbits(64)), over.is_set))
    await asyncio.gather(
        torment(town.alpha, random.Random(rng.getrandbits(64)), KILLS - betas - 1),
        torment(town.beta, random.Random(rng.getrandbits(64)), betas),
    )
    writer.finish()
    over.set()
    await asyncio.gather(*writing)
    return writer.letters, await sending


async def torment(home: Home, rng: random.Random, kills: int) -> None:
    """Kill it at any moment: while it starts, when it has just begun to answer, in the middle of work."""
    for _ in range(kills):
        home.start()
        if rng.random() < 0.2:
            await asyncio.sleep(rng.uniform(0, 1.5))
        else:
            await home.ready()
            await asyncio.sleep(rng.choice((rng.uniform(0, 0.1), rng.uniform(0, 1.5))))
        await home.kill()
    home.start()
    await home.ready()


async def settled(town: Town) -> None:
    """Until beta has sent what it has, and no act is under way."""
    patience = time.monotonic() + SETTLED_WITHIN
    while left := waiting(town):
        assert time.monotonic() < patience, left
        await asyncio.sleep(0.5)


def waiting(town: Town) -> list[dict[str, Any]]:
    """Messages not yet delivered, and acts that have not ended."""
    queued = town.beta.rows("select msg_id, attempts, next_at, detail from envelope_message where state = 'queued'")
    return [dict(row) for row in (*queued, *town.alpha.rows("select * from govern_act"))]


def summary(town: Town, letters: list[Letter], kept: Correspondence, seconds: float) -> str:
    kinds = Counter(letter.kind for letter in letters)
    again = sum(len(letter.replies) - 1 for letter in letters)
    lost = sum(letter.lost for letter in letters)
    unanswered = sum(letter.acknowledged is None for letter in letters)
    interrupted = sum(kind == "interrupted" for kind, _ in audit.entries(town.alpha))
    return (
        f"soak: {seconds:.0f} s, {town.alpha.lives} and {town.beta.lives} lives, {dict(kinds)}, {again} repeats,"
        f" {lost} attempts lost, {unanswered} ids spent without an answer, {interrupted} acts interrupted,"
        f" {len(kept.told)} sent by beta; entries:"
    )
