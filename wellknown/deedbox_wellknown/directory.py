"""Who is this domain? Fetches, checks and keeps what other domains publish of their agents (OIP 1.2 §7.3 to §7.5).

Times by decision 25. A document is kept in a table all processes share; memory holds only what was read from it, for
the document's life. One fetch a domain at a time, whoever asks; a failure is remembered for thirty seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from deedbox import AgentRecord, Refusal
from deedbox.domains import wire_domain
from deedbox.govern.limits import Shield
from deedbox.identity.agent_id import parse_agent_id
from deedbox.outgoing import DISCOVERY_LIMIT, Fetched
from deedbox_wellknown.copies import STALE, Copy, copy_of, is_alive, store_document, store_failure, stored
from deedbox_wellknown.oip import INBOX, NAME
from deedbox_wellknown.pins import pin
from deedbox_wellknown.records import Unresolved, failed_fetch, read_document, read_record, unreachable
from deedbox_wellknown.tables import PINS

if TYPE_CHECKING:
    from deedbox import Kernel, Node

PATH = f"/.well-known/{NAME}"
LIFE, SHORTEST, LONGEST = 300, 60, 3600
"""Seconds a document is kept: where its peer says nothing, at least, and at most."""
FAILED = 30_000
AGAIN = 30_000
DOMAINS_HELD = 4096
AGENTS_HELD = 256
REMEMBERED = 8192
PINS_A_DOMAIN = "60/min"


@dataclass(slots=True)
class Held:
    """What memory has of a domain: records already read, until when they hold, and when to look again (ms)."""

    fetched_at: int
    until: int
    renew_at: int
    records: dict[str, AgentRecord] = field(default_factory=dict)


class PeerDirectory:
    """The port ``Directory``. Agent ids come in lower case; every other spelling is mapped by ``resolve``."""

    def __init__(self, kernel: Kernel, new_domains: str) -> None:
        self._kernel = kernel
        self._development = kernel.settings.node.development is not None
        self._held: dict[str, Held] = {}
        self._failures: dict[str, tuple[int, Unresolved]] = {}
        self._refreshed: dict[str, int] = {}
        self._looked_again: dict[str, int] = {}
        self._flights: dict[str, asyncio.Task[Copy]] = {}
        self._pinned: dict[str, tuple[str, bool]] = {}
        self._pinning: dict[tuple[str, str], asyncio.Future[tuple[str, bool]]] = {}
        self._new_domains = Shield(new_domains)
        self._pins = Shield(PINS_A_DOMAIN)

    def known(self, agent: str, now: int) -> AgentRecord | None:
        """What memory has; in the last fifth of a document's life it is fetched again meanwhile."""
        domain = agent.rpartition("@")[2]
        held = self._held.get(domain)
        if held is None or now >= held.until:
            return None
        record = held.records.get(agent)
        if record is not None and now >= held.renew_at:
            held.renew_at = now + AGAIN
            self._begin(domain)
        return record

    async def resolve(self, agent: str, now: int) -> AgentRecord:
        """The agent's record; refuses ``sender_unverifiable`` with ``resolve_failure``."""
        try:
            agent, domain = self._checked(agent)
            return self.known(agent, now) or self._own(agent, domain, now) or await self._resolved(agent, domain, now)
        except Unresolved as failure:
            raise failure.refusal(FAILED // 1000) from failure

    async def refresh(self, agent: str, now: int) -> AgentRecord | None:
        """Fetch once more; whoever asks while or soon after somebody did is given what that brought.

        A fetch that fails changes nothing: a bad signature is no reason to forget a good document.
        """
        try:
            agent, domain = self._checked(agent)
            if domain == self._kernel.domain:
                return None
            last = self._refreshed.get(domain, 0)
            if domain in self._flights or _allowed(self._refreshed, domain, now):
                return await self._admitted(agent, domain, await self._flight(domain), now)
            held = self._held.get(domain)
            return await self._resolved(agent, domain, now) if held and held.fetched_at >= last else None
        except Unresolved:
            return None

    @asynccontextmanager
    async def running(self, node: Node) -> AsyncIterator[None]:
        """Ends what is still under way when the node stops."""
        yield
        flights = list(self._flights.values())
        for task in flights:
            task.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    # -- one agent -----------------------------------------------------------------------------------------------------

    def _checked(self, agent: str) -> tuple[str, str]:
        parts = parse_agent_id(agent)
        if parts is None:
            raise Unresolved("bad_agent_id", "not an agent id")
        try:
            domain = wire_domain(parts[1], development=self._development)
        except Refusal as refusal:
            raise Unresolved("bad_agent_id", refusal.detail) from None
        return f"{parts[0]}@{domain}", domain

    def _own(self, agent: str, domain: str, now: int) -> AgentRecord | None:
        """An agent of ours, which no network is asked for."""
        if domain != self._kernel.domain:
            return None
        if not self._kernel.agents.hosts(agent):
            raise Unresolved("agent_not_published", f"{agent} does not live here")
        held = self._kernel.agents.keys(agent, now)
        if not held:
            raise Unresolved("agent_record_incomplete", f"{agent} has no key that is valid now")
        keys = {each.pair.public.thumbprint: (each.pair.public, each.not_before, each.not_after) for each in held}
        return AgentRecord(agent, held[0].pair.public, f"{self._kernel.base_url}{INBOX}", keys)

    async def _resolved(self, agent: str, domain: str, now: int) -> AgentRecord:
        """The record from the document at hand, or one fetched for it; a failure is remembered for a while."""
        self._repeat_failure(agent, domain, now)
        try:
            copy = await self._obtain(domain, now)
            unseen = agent not in copy.entries and copy.fresh and now >= copy.fetched_at + FAILED
            if unseen and _allowed(self._looked_again, domain, now):
                with suppress(Unresolved):  # the document at hand is still good
                    copy = await self._flight(domain)
            return await self._admitted(agent, domain, copy, now)
        except Unresolved as failure:
            self._failures[domain if failure.domain else agent] = (now + FAILED, failure.again())
            _forget_oldest(self._failures, REMEMBERED)
            raise

    def _repeat_failure(self, agent: str, domain: str, now: int) -> None:
        for key in (domain, agent):
            until, failure = self._failures.get(key, (0, None))
            if failure is not None and now < until:
                raise failure.again()

    async def _admitted(self, agent: str, domain: str, copy: Copy, now: int) -> AgentRecord:
        """The record out of a document, its key held against the one we know."""
        entry = copy.entries.get(agent)
        if entry is None:
            raise Unresolved("agent_not_published", f"{domain} publishes no {agent}")
        try:
            record = read_record(entry, agent, domain, now, development=self._development)
        except Unresolved as failure:
            if isinstance(failure.__cause__, Refusal) and failure.__cause__.code == "private_key_published":
                self._kernel.log.error("peer_published_private_key", agent=agent)
            raise
        if not copy.fresh:
            record = replace(record, fresh=False, doubt="stale_document")
        elif not await self._is_pinned(record, domain, now):
            return replace(record, fresh=False, doubt="key_changed")
        held = self._hold(domain, copy)
        if held is not None and len(held.records) < AGENTS_HELD:
            held.records[agent] = record
        return record

    async def _is_pinned(self, record: AgentRecord, domain: str, now: int) -> bool:
        """Whether the key is the one we know; one in doubt is looked up each time, for the owner may confirm it."""
        agent, key = record.id, record.key.thumbprint
        seen = self._pinned.get(agent)
        if seen == (key, True):
            return True
        asking = self._pinning.get((agent, key))
        if asking is None:
            if (seen is None or seen[0] != key) and not self._pins.admits(domain, now):
                raise Unresolved("well_known_unreachable:too many new keys", temporary=True)
            asking = self._pinning[agent, key] = asyncio.ensure_future(self._pin(record))
            asking.add_done_callback(lambda _: self._pinning.pop((agent, key), None))
        return await asyncio.shield(asking) == (key, True)

    async def _pin(self, record: AgentRecord) -> tuple[str, bool]:
        kernel = self._kernel
        pinned = await kernel.database.run_asking(((PINS, record.id),), pin, kernel, record)
        seen = self._pinned[record.id] = (record.key.thumbprint, pinned)
        _forget_oldest(self._pinned, REMEMBERED)
        return seen

    def _hold(self, domain: str, copy: Copy) -> Held | None:
        """The place in memory for records of this document; nothing if a newer one is there already."""
        held = self._held.get(domain)
        if held is not None and held.fetched_at > copy.fetched_at:
            return None
        if held is None or held.fetched_at < copy.fetched_at or held.until != copy.until:
            self._held.pop(domain, None)
            held = self._held[domain] = Held(copy.fetched_at, copy.until, copy.renew_at)
            _forget_oldest(self._held, DOMAINS_HELD)
        return held

    # -- one domain ----------------------------------------------------------------------------------------------------

    async def _obtain(self, domain: str, now: int) -> Copy:
        """The shared copy if it is within its life, else a fetch; while a peer is down, the old copy."""
        row = await self._kernel.database.read(stored, domain)
        if is_alive(row, now):
            return copy_of(row, domain)
        try:
            if row is not None and row.failure is not None and now < row.failed_at + FAILED:
                raise Unresolved(row.failure, temporary=row.temporary, domain=True)
            unheard = row is None or row.document is None  # also one that was asked before and said nothing
            if unheard and domain not in self._flights and not self._new_domains.admits("", now):
                raise unreachable("too many domains are new to this node", temporary=True)
            return await self._flight(domain)
        except Unresolved as failure:
            if failure.temporary and row is not None and row.document is not None and now < row.fetched_at + STALE:
                return replace(copy_of(row, domain), until=now + FAILED, renew_at=now + FAILED, fresh=False)
            raise

    def _flight(self, domain: str) -> asyncio.Future[Copy]:
        """Join the fetch that is under way, or begin one; it goes on even if whoever asked goes away."""
        return asyncio.shield(self._begin(domain))

    def _begin(self, domain: str) -> asyncio.Task[Copy]:
        task = self._flights.get(domain)
        if task is None:
            task = self._flights[domain] = asyncio.create_task(self._fetch(domain), name=f"directory {domain}")
            task.add_done_callback(partial(self._landed, domain))
        return task

    def _landed(self, domain: str, task: asyncio.Task[Copy]) -> None:
        self._flights.pop(domain, None)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, Unresolved):
            self._kernel.log.error("directory_failed", domain=domain, exc_info=error)

    async def _fetch(self, domain: str) -> Copy:
        """Ask the domain, keep what it says, and read again who was known of it.

        A failure is kept too, unless a document is within its life: then that lives its life to the end.
        """
        database = self._kernel.database
        row = await database.read(stored, domain)
        etag = row.etag if row is not None and row.document is not None else None
        try:
            fetched = await self._asked(domain, etag)
            text = row.document if fetched.status == 304 and etag else fetched.body.decode("utf-8", "replace")
            entries = read_document(text, domain)
        except Unresolved as failure:
            if not is_alive(row, self._kernel.clock.now()):
                await database.run(store_failure, domain, failure)
            raise
        life = self._life(fetched.max_age)
        kept = fetched.etag or (etag if fetched.status == 304 else None)
        now = await database.run(store_document, domain, text, kept, life)
        self._failures.pop(domain, None)
        copy = Copy.within_life(entries, now, life)
        await self._renew(domain, copy)
        return copy

    async def _renew(self, domain: str, copy: Copy) -> None:
        """Let records in memory be those of the new document."""
        before = self._held.get(domain)
        if before is not None and before.fetched_at <= copy.fetched_at:
            del self._held[domain]  # also one that was fetched in the same instant and lives as long
        self._hold(domain, copy)
        for agent in before.records if before else ():
            with suppress(Unresolved):
                await self._admitted(agent, domain, copy, copy.fetched_at)

    async def _asked(self, domain: str, etag: str | None) -> Fetched:
        try:
            return await self._kernel.outgoing.get_json(domain, PATH, limit=DISCOVERY_LIMIT, etag=etag)
        except Refusal as refusal:
            raise failed_fetch(refusal) from refusal

    def _life(self, max_age: int | None) -> int:
        """Seconds to keep a document: what the peer says, moved by a tenth so that not all end together, clamped."""
        wanted = LIFE if max_age is None else max_age
        moved = wanted * (0.9 + 0.2 * int.from_bytes(self._kernel.ids.secret(2)) / 65_535)
        return round(min(max(moved, SHORTEST), LONGEST))


def _allowed(instants: dict[str, int], domain: str, now: int) -> bool:
    """Whether this was not done for the domain in the last thirty seconds; if so, it counts as done now."""
    last = instants.get(domain)
    if last is not None and now < last + AGAIN:
        return False
    if len(instants) >= REMEMBERED:
        for key in [key for key, instant in instants.items() if instant <= now - AGAIN]:
            del instants[key]
    instants[domain] = now
    return True


def _forget_oldest(kept: dict[str, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]
