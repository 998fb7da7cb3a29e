"""Gives a node a past: entries, events and batches through the ledger's own code, thousands to a group.

What the inbox keeps beside them is copied from what it really wrote: the newest query and the newest invoke of the
database are the models of all others, only their ids and times are new. Every message leaves an event, an entry and
an exchange; the last ``recent`` of them are within the keeping time of claims and threads, and have those too.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from deedbox import settings
from deedbox.govern.claims import CLAIMS
from deedbox.kernel import open_kernel
from deedbox.ledger.sealing import BATCH_COUNT, seal, sign_head
from deedbox.node import Node, assemble, facet_classes
from deedbox.storage.database import Reader
from deedbox.storage.tables import Rows
from deedbox.storage.unit import Unit
from deedbox_inbox.tables import EXCHANGES, THREADS

GROUP = 4 * BATCH_COUNT
MINUTE = 60_000
SPREAD = 20 * 60 * MINUTE
"""The recent messages came within the last 20 hours: every claim is still kept."""
YEAR = 365 * 24 * 60 * MINUTE

Row = dict[str, Any]


class Past:
    """A clock that is moved by hand (``deedbox.clock.Clock``)."""

    def __init__(self, at: int) -> None:
        self.at = at

    def now(self) -> int:
        return self.at


class Model:
    """A row that the inbox wrote, and what of it changes for another message: whatever holds a name of the first."""

    def __init__(self, row: Row, names: Mapping[str, str]) -> None:
        self.row, self._names = row, names
        texts = {column: value.decode() if isinstance(value, bytes) else value for column, value in row.items()}
        self._texts = {
            column: text
            for column, text in texts.items()
            if isinstance(text, str) and any(name in text for name in names.values())
        }

    def anew(self, names: Mapping[str, str]) -> Row:
        """The row with the names of another message in all its texts."""
        made = self.row.copy()
        for column, text in self._texts.items():
            for name, old in self._names.items():
                text = text.replace(old, names[name])
            made[column] = text.encode() if isinstance(made[column], bytes) else text
        return made


@dataclass(frozen=True)
class Models:
    """What one query and one invoke left behind."""

    exchange: Model
    claim: Model
    thread: Model
    event: Row
    entry: Row
    newest: int
    """The number of the last exchange."""

    @classmethod
    def read(cls, reader: Reader) -> Models:
        """From the newest query and the newest invoke; fails where there is neither."""
        exchange = _only(reader, EXCHANGES, "kind = 'query' order by id desc limit 1")
        claim = _only(reader, CLAIMS, "key like :key", key=f"inbox/{exchange['msg_id']}/%")
        thread = _only(reader, THREADS, "id = :id", id=exchange["thread"])
        events = reader.all("select event from ledger_event order by id desc limit 200")
        entries = reader.all("select payload from ledger_payload order by seq desc limit 200")
        event = next(told for row in events if (told := orjson.loads(row.event)).get("msg") == exchange["msg_id"])
        entry = next(told for row in entries if (told := orjson.loads(row.payload)).get("charges"))
        newest = _only(reader, EXCHANGES, "true order by id desc limit 1")["id"]
        names = {"msg": exchange["msg_id"], "conv": thread["conversation"], "resp": exchange["response_id"]}
        return cls(Model(exchange, names), Model(claim, names), Model(thread, names), event, entry, newest)


def _only(reader: Reader, rows: Rows, where: str, **values: Any) -> Row:
    found = reader.one(f"select {', '.join(rows.columns)} from {rows.name} where {where}", **values)
    if found is None:
        raise LookupError(f"no model for {rows.name}: has the node answered a query and an invoke?")
    return dict(zip(rows.columns, found, strict=True))


class Loader:
    """Writes message after message, as if the node had answered them."""

    def __init__(self, node: Node, clock: Past, models: Models) -> None:
        self._node, self._clock, self._models = node, clock, models
        self._number = models.newest

    async def load(self, count: int, recent: int) -> None:
        """``count`` messages in groups; after each group its events are sealed, at the end all and the head signed."""
        end = self._clock.at
        for start in range(0, count, GROUP):
            size = min(GROUP, count - start)
            left = count - start - size
            self._clock.at = end - (SPREAD * left // max(recent, 1) if left < recent else YEAR * left // count)
            await self._node.database.run(self._group, size, max(0, size - max(0, left + size - recent)))
            while await self._node.database.run(seal, self._node):
                pass
        self._clock.at = end
        while await self._node.database.run(seal, self._node, True):
            pass
        await self._node.database.run(sign_head, self._node)

    def _group(self, unit: Unit, size: int, recent: int) -> None:
        """One unit; of its messages the last ``recent`` still have a claim and a thread."""
        for place in range(size):
            self._number += 1
            names = {
                "msg": f"msg_{_random()}",
                "conv": f"conv_{_random()}",
                "resp": self._node.ids.new("msg", unit.now),
            }
            self._record(unit, names)
            if place >= size - recent:
                self._keep(unit, names)

    def _record(self, unit: Unit, names: Mapping[str, str]) -> None:
        models, ledger = self._models, self._node.ledger
        invocation = self._node.ids.new("inv", unit.now)
        own = {"msg": names["msg"], "conversation": names["conv"]}
        ledger.event(unit, {**models.event, **own, "ts": unit.now})
        payload = {**models.entry, **own, "invocation": invocation}
        subject = payload["object"]
        ledger.entry(unit, "executed", payload["actor"], payload, subject=subject, invocation=invocation)
        row = models.exchange.anew(names)
        row |= {"id": self._number, "thread": self._number, "at": unit.now, "responded_at": unit.now}
        unit.note(EXCHANGES, tuple(row.values()))

    def _keep(self, unit: Unit, names: Mapping[str, str]) -> None:
        claim = self._models.claim.anew(names) | {"at": unit.now, "kept_until": unit.now + 2 * SPREAD}
        claim["meta"] = orjson.dumps({**orjson.loads(claim["meta"]), "exchange": self._number}).decode()
        unit.put(CLAIMS, claim)
        times = {"created_at": unit.now, "updated_at": unit.now}
        unit.put(THREADS, self._models.thread.anew(names) | times | {"id": self._number})


def _random() -> str:
    """The part of an id that a peer chose."""
    return urlsafe_b64encode(os.urandom(12)).decode()


async def load(config: Path, count: int, recent: int) -> dict[str, float]:
    """Load the database of the settings; nobody else may have it open."""
    chosen = settings.load(config)
    clock = Past(time.time_ns() // 1_000_000)
    kernel = await open_kernel(chosen, clock=clock)
    began = time.perf_counter()
    try:
        node = assemble(kernel, facet_classes(chosen.facets, {}))
        models = await kernel.database.read(Models.read)
        await Loader(node, clock, models).load(count, recent)
        for job in node.jobs.values():
            if job.every:
                await job.run(node, {})  # what a day's schedule would have done by now
        sizes = await kernel.database.read(_sizes)
    finally:
        await kernel.close()
    return {"seconds": time.perf_counter() - began, **sizes}


def _sizes(reader: Reader) -> dict[str, float]:
    names = ("ledger_entry", "ledger_event", "inbox_exchange", "inbox_thread", "govern_claim")
    counted = {name: reader.all(f"select count(*) as n from {name}")[0].n for name in names}
    (pages,) = reader.all("select page_count * page_size / 1e6 as mb from pragma_page_count, pragma_page_size")
    return {**counted, "database_mb": pages.mb}


def main() -> None:
    """Loads, and prints how long it took and how much there is now."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--config", type=Path, required=True)
    options.add_argument("--count", type=int, required=True)
    options.add_argument("--recent", type=int, default=100_000)
    chosen = options.parse_args()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    print(orjson.dumps(asyncio.run(load(chosen.config, chosen.count, chosen.recent))).decode())


if __name__ == "__main__":
    main()
