"""The few needs between facets: tiny protocols the kernel declares and one facet provides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from deedbox.identity.keys import P256Public

if TYPE_CHECKING:
    from deedbox.intent import Reply
    from deedbox.storage.unit import Unit


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """What a domain publishes of one of its agents (OIP 1.2 §7.1, §7.2).

    ``keys`` are further keys by their ``kid``, each with its window in milliseconds; ``fresh`` says it may serve
    authority and not only disclosure. Where it may not, ``doubt`` says why, in the words of ``resolve_failure``:
    ``stale_document``, or ``key_changed`` for a key that replaced another unannounced (OIP 1.2 §29 W14).
    """

    id: str
    key: P256Public
    inbox: str
    keys: Mapping[str, tuple[P256Public, int | None, int | None]] = field(default_factory=dict)
    fresh: bool = True
    doubt: str = ""

    def valid_keys(self, now: int) -> dict[str, P256Public]:
        """The further keys whose window holds at ``now``."""
        return {
            kid: key
            for kid, (key, begins, ends) in self.keys.items()
            if (begins is None or begins <= now) and (ends is None or now < ends)
        }


class Directory(Protocol):
    """Who is this domain? Fetches, checks, keeps (decision 25)."""

    def known(self, agent: str, now: int) -> AgentRecord | None:
        """What memory has of an agent within its life; never waits."""

    async def resolve(self, agent: str, now: int) -> AgentRecord:
        """The agent's record, fetched if need be; a refusal ``sender_unverifiable`` carries ``resolve_failure``."""

    async def refresh(self, agent: str, now: int) -> AgentRecord | None:
        """Fetch once more after a bad signature, at most once per domain in 30 s; nothing if not allowed now."""


class Inbox(Protocol):
    """Accept envelope bytes from any carrier, down the one road."""

    async def accept(self, raw: bytes, *, carrier: str, address: str) -> Reply:
        """What the road says; a reply without an answer is a refusal for the carrier to phrase by itself."""

    def answer(self, reply: Reply) -> bytes:
        """The signed envelope of a reply that has an answer."""


class Agreements(Protocol):
    """What contract binds these two?"""

    def in_force(self, unit: Unit, one: str, other: str) -> Mapping[str, Any] | None: ...


class LiveSessions(Protocol):
    """Who is in this one?"""

    def members(self, unit: Unit, session: str) -> tuple[str, ...]: ...
