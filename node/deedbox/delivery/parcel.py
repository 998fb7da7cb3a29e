"""What the outbox gives a transport, and what it wants back: the peer's answer, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deedbox.refusals import Fault, Refusal

SERVICE_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Parcel:
    """One signed envelope and where to. ``uncertain``: an earlier attempt may have arrived and was not answered."""

    message_id: str
    kind: str
    sender: str
    recipient: str
    body_sha256: str
    inbox: str
    wire: bytes = field(repr=False)
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class Handover:
    """The peer took it: its status and exact answer, and what its ledger had said of the message if it was asked."""

    status: int
    answer: bytes = field(repr=False)
    known: Mapping[str, Any] | None = None


class NotDelivered(Refusal):
    """An attempt after which the message is not known to have been taken.

    ``final``: another attempt makes no sense. ``sent``: some of it may have left. ``answered``: the peer's own status,
    if it gave one.
    """

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        final: bool = False,
        sent: bool = False,
        answered: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(code, answered or 502, detail, fault=Fault.NETWORK, retry_after=retry_after)
        self.final = final
        self.sent = sent
        self.answered = answered

    @property
    def uncertain(self) -> bool:
        """Whether the peer may have acted all the same: no answer, or one that somebody before it may have given."""
        silent = self.answered is None or self.answered >= 500
        return self.sent and silent and self.answered != SERVICE_UNAVAILABLE
