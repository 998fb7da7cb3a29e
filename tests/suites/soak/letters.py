"""Who writes to a node that keeps being killed: every message is sent, byte for byte, until it is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deedbox import control
from deedbox.refusals import Refusal
from deedbox_conformance import wire
from deedbox_conformance.client import Unreachable
from tests.suites.soak.homes import Town

AGAIN_AFTER = 0.1
PATIENCE = 120.0
"""Seconds between two attempts, and for one message."""
KINDS = ("query", "COUNT", "COUNT", "RING")


@dataclass
class Letter:
    """A message and everything that ever came back for it."""

    kind: str
    envelope: dict[str, Any]
    replies: list[dict[str, Any]] = field(default_factory=list)
    lost: int = 0
    """Attempts that ended without an answer."""

    @property
    def id(self) -> str:
        return str(self.envelope["id"])

    @property
    def name(self) -> str:
        """What the object was given: the message's own id."""
        return self.id

    @property
    def answer(self) -> dict[str, Any] | None:
        """The reply that was given, whether once or again."""
        return next((reply for reply in self.replies if reply["kind"] == "result"), None)

    @property
    def repeats(self) -> list[dict[str, Any]]:
        """The refusals of its repeats."""
        return [reply for reply in self.replies if reply["kind"] == "error"]

    @property
    def acknowledged(self) -> str | None:
        """The id of the answer that stands for it, as it came or as a repeat was told."""
        if self.answer is not None:
            return str(self.answer["id"])
        originals = [reply["body"].get("original") or {} for reply in self.repeats]
        return next((told["response_id"] for told in originals if told.get("response_id")), None)


class Writer:
    """Writes letters as the peer, a few at a time, and now and then one that was answered before."""

    def __init__(self, town: Town, rng: random.Random) -> None:
        self._town = town
        self._rng = rng
        self._over = asyncio.Event()
        self.letters: list[Letter] = []

    def finish(self) -> None:
        """Answer for what is under way, and write no more."""
        self._over.set()

    async def write(self) -> None:
        while not self._over.is_set():
            letter = await self._letter()
            self.letters.append(letter)
            await self._send(letter)
            if self._rng.random() < 0.2:
                await self._send(self._rng.choice([each for each in self.letters if each.replies]))
            await asyncio.sleep(self._rng.uniform(0, 0.08))

    async def _letter(self) -> Letter:
        kind = self._rng.choice(KINDS)
        probe, tokens = self._town.probe, self._town.tokens
        if kind == "query":
            draft = await probe.draft("query", {"text": "still there?"})
        else:
            token = tokens[f"{kind} {self._town.peer.domain}"]
            draft = await probe.draft("invoke", {}, capability=token)
            draft["body"] = {"key": kind, "args": str(draft["id"])}
            draft["body_sha256"] = wire.body_hash(draft)
        return Letter(kind, probe.sign(draft))

    async def _send(self, letter: Letter) -> None:
        """The same bytes until something signed comes back."""
        content = wire.canonical(letter.envelope)
        inbox = (await self._town.probe.agent()).inbox
        headers = {"content-type": "application/json"}
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    answer = await self._town.client.send("POST", inbox, content=content, headers=headers)
                except Unreachable:
                    letter.lost += 1
                    await asyncio.sleep(AGAIN_AFTER)
                    continue
                assert answer.status in (200, 503), (answer.status, answer.body)
                if answer.status == 200:
                    break
                await asyncio.sleep(AGAIN_AFTER)
        reply = answer.members()
        assert await self._town.probe.verifies(reply), reply
        assert reply["in_reply_to"] == letter.id
        letter.replies.append(reply)


@dataclass
class Correspondence:
    """What the second node's owner had it send: the ids it said it would, and how each stood then."""

    told: dict[str, Mapping[str, Any]] = field(default_factory=dict)


async def correspond(town: Town, rng: random.Random, over: Callable[[], bool]) -> Correspondence:
    """Have beta send to alpha, by its owner's socket, whoever of the two may be down."""
    kept = Correspondence()
    while not over():
        arguments: dict[str, Any] = {"to": f"node@{town.alpha.domain}", "kind": "query", "body": {"text": "well?"}}
        if rng.random() < 0.6:
            name = f"beta {rng.getrandbits(64):x}"
            arguments |= {"kind": "invoke", "body": {"key": "COUNT", "args": name}}
            arguments["capability"] = town.tokens[f"COUNT {town.beta.domain}"]
        try:
            told = await asyncio.to_thread(control.call, town.beta.socket, "SEND", arguments)
        except Refusal:
            told = None
        if told is not None and told.get("ok"):
            kept.told[told["value"]["message_id"]] = told["value"]
        await asyncio.sleep(rng.uniform(0.4, 1.2))  # after a lost answer it asks first, at most thirty times a minute
    return kept
