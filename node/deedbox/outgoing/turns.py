"""How often, and how many at a time, the node bothers one remote host (OIP 1.2 §7.5).

A shield kept in process: what it forgets when the process ends costs nobody anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from deedbox.clock import Clock

MINUTE = 60_000
KINDS_REMEMBERED = 4096


class Turns:
    """Counts exchanges by kind and host over the last minute, and lets ``at_once`` with a host run together."""

    def __init__(self, clock: Clock, at_once: int = 4) -> None:
        self._clock = clock
        self._at_once = at_once
        self._gates: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._seen: dict[str, deque[int]] = {}

    def count(self, kind: str, per_minute: int) -> int:
        """Take one of the minute's exchanges of a kind: 0 if there was one, else the whole seconds until there is."""
        now = self._clock.now()
        if len(self._seen) >= KINDS_REMEMBERED:
            self._seen = {name: instants for name, instants in self._seen.items() if instants[-1] > now - MINUTE}
        instants = self._seen.setdefault(kind, deque())
        while instants and instants[0] <= now - MINUTE:
            instants.popleft()
        if len(instants) >= per_minute:
            return max(1, -(-(instants[0] + MINUTE - now) // 1000))
        instants.append(now)
        return 0

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait until fewer than ``at_once`` exchanges with the host are running, then count as one of them."""
        gate = self._gates.get(host) or self._gates.setdefault(host, asyncio.Semaphore(self._at_once))
        async with gate:
            yield
