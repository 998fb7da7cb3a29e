"""What the node will stand behind afterwards: the public view of an entry or an event (decision 32)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deedbox.intent import Operation, Outcome


@dataclass(slots=True)
class Receipt:
    """Where something was written, and its hash.

    ``seq`` is set for an entry and ``event`` for an event; ``leaf`` is the entry's Merkle leaf or the event's leaf
    in its batch; ``checkpoint`` the newest signed head when it was given out, which may be older than the entry.
    ``operation``, ``outcome`` and ``written`` are for observers and are never shown.
    """

    leaf: bytes
    seq: int | None = None
    event: int | None = None
    checkpoint: str | None = None
    invocation: str | None = None
    operation: Operation | None = None
    outcome: Outcome | None = None
    written: Mapping[str, Any] = field(default_factory=dict)
    remember: dict[str, Any] = field(default_factory=dict)
    """What an observer wants the claim to keep, such as where it put the message."""

    @property
    def id(self) -> str:
        """``entry:12`` or ``event:3456``; the invocation's own id where there is one."""
        return self.invocation or (f"entry:{self.seq}" if self.seq is not None else f"event:{self.event}")

    def public(self) -> dict[str, Any]:
        """As it is shown: ``{id, seq, leaf, checkpoint}`` or ``{id, hash, batch}``."""
        if self.seq is not None:
            return {"id": self.id, "seq": self.seq, "leaf": self.leaf.hex(), "checkpoint": self.checkpoint}
        return {"id": self.id, "hash": self.leaf.hex(), "batch": None}
