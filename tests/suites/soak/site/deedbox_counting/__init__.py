"""A facet that counts what it runs: in its own table what runs inside, in a file what leaves the process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deedbox import Effect, Facet, Inside, Kernel, Object, Operation, Outside, Plugin, Section, Text, Unit, hookimpl

DEADLINE = 1.0


class CountingSettings(Section):
    """Where acts outside are written down, and how soon this node tries again what it could not deliver."""

    file: Path
    first_wait: int = 30_000


class Counting(Plugin):
    """The facet ``counting``."""

    facet = Facet(
        name="counting",
        summary="Counts its runs.",
        settings=CountingSettings,
        migrations=Path(__file__).parent / "migrations",
    )

    def __init__(self, kernel: Kernel, settings: CountingSettings) -> None:
        super().__init__(kernel, settings)
        _hurry(settings.first_wait)

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        shared: dict[str, Any] = {"effect": Effect.EXECUTION, "arguments": Text, "safe": False, "idempotent": False}
        yield Object(key="COUNT", summary="Count a name.", runner=Inside(count), **shared)
        yield Object(key="RING", summary="Write a name to a file.", runner=Outside(self.ring, DEADLINE), **shared)

    async def ring(self, given: Text, operation: Operation) -> str:
        """An act that nobody can take back: a line in a file."""
        line = os.open(self.settings.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(line, f"{given.text}\n".encode())
        os.close(line)
        await asyncio.sleep(0.02)
        return f"rang for {given.text}"


def count(unit: Unit, given: Text, operation: Operation) -> str:
    insert = "insert into counting_run (invocation, name) values (:invocation, :name)"
    unit.change(insert, invocation=operation.invocation, name=given.text)
    return f"counted {given.text}"


def _hurry(first_wait: int) -> None:
    """The outbox waits half a minute, then up to four hours, before it tries again; a soak has neither."""
    from deedbox.delivery import sending

    sending.FIRST_WAIT, sending.LONGEST_WAIT = first_wait, 8 * first_wait  # type: ignore[misc]
