"""What the inbox keeps: exchanges for ever, threads and sealed blocks for a while (OIP 1.2 §10, §11, §6.7)."""

from __future__ import annotations

from sqlmodel import Field

from deedbox import Rows, Table


class Exchange(Table, table=True):
    """A message and the answer it got, in either direction: a row of the federation ledger, two of a conversation.

    ``thread`` is 0 for what is in no conversation: it was turned away, or never arrived.
    """

    id: int = Field(primary_key=True)
    thread: int
    direction: str
    at: int
    msg_id: str
    kind: str
    sender: str
    recipient: str
    in_reply_to: str | None = None
    body_sha256: str
    verified: bool
    verdict: str
    status: int
    reason: str | None = None
    audience: str | None = None
    capability: str | None = None
    invocation: str | None = None
    response_id: str | None = None
    response_kind: str | None = None
    response_sha256: str | None = None
    response_verified: bool = True
    responded_at: int | None = None


class Thread(Table, table=True):
    """A conversation between one of our agents and one other agent; ``key`` is the three names that make it.

    With somebody whose name is ``verified`` it is kept for a month after its last message, else for a day.
    """

    key: str = Field(primary_key=True)
    id: int
    conversation: str
    home: str
    other: str
    verified: bool
    opened_by: str
    created_at: int
    updated_at: int
    state: str
    messages: int
    commitments: str
    requests: str
    receipts: str
    final: str | None = None


class Block(Table, table=True):
    """Which verified sender a sealed block first came from, so that nobody else can have it opened."""

    sha256: str = Field(primary_key=True)
    sender: str
    kept_until: int


class Recent(Table, table=True):
    """Where an exchange without a claim is, by its message id: sent messages, and what was turned away."""

    exchange: int = Field(primary_key=True)
    msg_id: str
    at: int


class Span(Table, table=True):
    """The sealed index of up to 65,536 exchanges: sorted pairs of a message id's hash prefix and the row's number."""

    first: int = Field(primary_key=True)
    last: int
    begins: int
    ends: int
    pairs: bytes


EXCHANGES = Rows(Exchange, key="id")
THREADS = Rows(Thread, key="key")
BLOCKS = Rows(Block, key="sha256")
RECENT = Rows(Recent, key="exchange")
