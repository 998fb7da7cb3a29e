"""Waking the others who share an engine: NOTIFY inside the group, one LISTEN connection a process (decision 36).

PostgreSQL delivers what a transaction notified when it is committed (LISTEN, NOTIFY). A notice carries nothing: who
hears it reads the table. One that gets lost with a connection costs no more than the poll's wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deedbox.storage.group import Group
    from deedbox.storage.unit import Unit

CHANNEL = "deedbox_work"
AGAIN_AFTER = 2.0
"""Seconds before a lost connection is opened again."""


class _Notice:
    """The one notice of a group."""

    def flush(self, group: Group) -> None:
        group.connection.script(f"notify {CHANNEL}")


def wake_others(unit: Unit) -> None:
    """Have the other processes told, once the group is kept, that there is work; nothing on an embedded engine."""
    if unit.engine == "postgresql":
        unit.part("notice", lambda _: _Notice())


async def hear_others(url: str, bell: Callable[[], object]) -> None:
    """Ring whenever another process has work for us, until cancelled; and when we begin to listen."""
    from psycopg import AsyncConnection, OperationalError

    while True:
        try:
            async with await AsyncConnection.connect(url, autocommit=True, connect_timeout=5) as connection:
                await connection.execute(f"listen {CHANNEL}".encode())
                bell()
                async for _ in connection.notifies():
                    bell()
        except OperationalError:
            await asyncio.sleep(AGAIN_AFTER)
