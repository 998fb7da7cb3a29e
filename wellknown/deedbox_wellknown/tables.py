"""What peers published and which key of theirs we saw first: shared by all processes of a node (decisions 25, 36)."""

from __future__ import annotations

from sqlmodel import Field

from deedbox import Rows, Table


class Peer(Table, table=True):
    """A domain's ``oip.json`` as it came, and how the last try to have it ended.

    ``fetched_at`` and ``failed_at`` in milliseconds; ``max_age`` seconds of life, already clamped and jittered;
    ``temporary`` says the failure may pass, so that the old document still serves disclosure.
    """

    domain: str = Field(primary_key=True)
    document: str | None = None
    etag: str | None = None
    fetched_at: int = 0
    max_age: int = 0
    failure: str | None = None
    failed_at: int = 0
    temporary: bool = False


class Pin(Table, table=True):
    """The key believed for an agent, since when, and one it changed to without announcing it, if that happened."""

    agent: str = Field(primary_key=True)
    thumbprint: str
    first_seen: int
    changed_to: str | None = None


PEERS = Rows(Peer, key="domain")
PINS = Rows(Pin, key="agent")
