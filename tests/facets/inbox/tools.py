"""Objects for the tests of the gates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from deedbox import Effect, Facet, Hold, Inside, Object, Outside, Plugin, Refusal, Text, hookimpl


class Tools(Plugin):
    """Objects that count, break, refuse, talk too much and take their time; what is ``held`` waits for a person."""

    facet = Facet(name="tools", summary="Objects for tests.")

    def __init__(self, kernel: Any, settings: Any) -> None:
        super().__init__(kernel, settings)
        self.runs = 0
        self.leave = asyncio.Event()

    @hookimpl
    def deedbox_objects(self) -> Iterator[Object[Any]]:
        inside = {
            "COUNT": self.count,
            "BREAK": lambda unit, given, operation: 1 / 0,
            "REFUSE": self.refuse,
            "LONG": lambda unit, given, operation: "é" * int(given.text),
            "FAILING": lambda unit, given, operation: {"ok": False, "error": "the provider is down"},
            "UNPRINTABLE": lambda unit, given, operation: {"at": object()},
            "HALF": lambda unit, given, operation: "\ud83d" + "x" * 399 + "\U0001f600",
        }
        for key, call in inside.items():
            yield Object(key, f"{key} for tests.", Effect.EXECUTION, Text, Inside(call))
        yield Object("SLOW", "Waits.", Effect.EXECUTION, Text, Outside(self.slow))
        yield Object("OPEN", "Public.", Effect.DISCLOSURE, Text, Inside(self.count), public=True)
        yield Object("UNLISTED", "Not listed.", Effect.EXECUTION, Text, Inside(self.count), listed=False)

    @hookimpl
    def deedbox_policies(self) -> Iterator[Any]:
        yield self

    name = "tools-held"

    def judge(self, unit: Any, operation: Any) -> Hold | None:
        found = operation.found
        if operation.intent.object_key == "PROPOSE" and found.body.get("held"):
            return Hold("pending", "the owner will look at it", policy=self.name)
        return None

    def count(self, unit: Any, given: Text, operation: Any) -> str:
        self.runs += 1
        return f"{self.runs}:{given.text}"

    def refuse(self, unit: Any, given: Text, operation: Any) -> str:
        raise Refusal("not_today", 409, "the object does not want to")

    async def slow(self, given: Text, operation: Any) -> str:
        self.runs += 1
        await self.leave.wait()
        return "at last"
