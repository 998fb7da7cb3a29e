"""Which processes share this database and are alive: a lease each, renewed while they serve (decision 34)."""

from __future__ import annotations

from sqlmodel import Field

from deedbox.storage.tables import Rows, Table
from deedbox.storage.unit import Unit

LEASE = 30_000
RENEW_EVERY = 10.0


class Process(Table, table=True):
    """A process and the instant until which it answers for what it began."""

    id: str = Field(primary_key=True)
    lease_until: int


PROCESSES = Rows(Process, key="id")


class Processes:
    """This process' own name, and whether another still lives."""

    def __init__(self, own: str, *, shared: bool) -> None:
        self.own = own
        self._shared = shared

    def renew(self, unit: Unit) -> None:
        """Say that we live; forgets processes gone for a day."""
        unit.put(PROCESSES, {"id": self.own, "lease_until": unit.now + LEASE})
        unit.change("delete from govern_process where lease_until < :old", old=unit.now - 86_400_000)

    def alive(self, unit: Unit, process: str) -> bool:
        """An embedded database has one process; on a shared one the lease tells."""
        if process == self.own:
            return True
        if not self._shared:
            return False
        row = unit.fact(PROCESSES, process)
        return row is not None and row["lease_until"] > unit.now
