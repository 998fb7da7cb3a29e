"""The values that flow down the road: what was asked, what was proven, understood, judged, done and told.

Those made for every message are slotted and not frozen: freezing doubles what making one costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from deedbox.identity.principal import ANONYMOUS, Anonymous, Principal
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.catalog import Catalog, Object
    from deedbox.ledger.receipt import Receipt
    from deedbox.storage.group import Ask
    from deedbox.storage.unit import Unit


class Effect(StrEnum):
    """The governance class of an object (OSz reference, "Governance classification")."""

    DISCLOSURE = "disclosure"
    EXECUTION = "execution"


@dataclass(slots=True)
class Once:
    """What makes this asking the same as an earlier one.

    ``key`` names the space and the id in it; ``digest`` what must agree for a repeat to be the same message;
    ``expires_at`` is the instant after which the asking would be refused by time anyway.
    """

    key: str
    digest: str
    expires_at: int


@dataclass(slots=True)
class Intent:
    """What somebody asked, with the exact bytes; nothing in it is believed yet."""

    surface: str
    at: int
    object_key: str
    arguments: Any
    phrasing: Phrasing
    credential: Any = field(default_factory=Anonymous)
    token: str | None = None
    once: Once | None = None
    raw: bytes = b""
    address: str = ""
    request_id: str = ""
    inputs_sha256: str = ""
    named: bool = False
    """An unknown object is carried on to the policies instead of refused at once (OIP 1.2 §8.4, row 8)."""
    dry: bool = False
    subject: Mapping[str, Any] = field(default_factory=dict)
    """What the surface wants the receipt to say of the message: ids and hashes, never contents or tokens."""


@dataclass(slots=True)
class Proof:
    """What *prepare* established before the database: who it proves, or the refusal that will be the answer."""

    principal: Principal = ANONYMOUS
    refusal: Refusal | None = None
    objection: Refusal | None = None
    """A no that comes after the id is spent: a body that does not open, arguments that are no strings."""
    asks: tuple[Ask, ...] = ()
    found: Any = None
    """What the authenticator keeps for *believe*, and the surface for its answer: a key, an opened body."""


@dataclass(slots=True)
class Operation:
    """An intent understood: whose it is, which object it names, with valid arguments."""

    intent: Intent
    principal: Principal
    object: Object[Any] | None
    arguments: Any
    now: int
    found: Any = None
    invocation: str | None = None
    catalog: Catalog | None = None
    """What else this node offers, for objects that speak of objects."""
    unfit: Refusal | None = None
    """Why the arguments are no good; said only after a token's own gates, and not at all if it fixes them."""

    @property
    def effect(self) -> Effect:
        return self.object.effect if self.object else Effect.EXECUTION


class Weight(IntEnum):
    """Deny beats hold beats allow."""

    ALLOW = 1
    HOLD = 2
    DENY = 3


class Charge(Protocol):
    """What an allowance costs; applied by the road, in the unit, only for the winning verdict."""

    def apply(self, unit: Unit) -> None: ...

    def describe(self) -> dict[str, Any]:
        """What the receipt says of it: a capability's fingerprint, never its token."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Yes, at a price; ``arguments`` take the place of the given ones where the grant fixes them."""

    charges: tuple[Charge, ...] = ()
    arguments: Any = None
    policy: str = ""
    weight: Weight = Weight.ALLOW


@dataclass(frozen=True, slots=True)
class Hold:
    """Not until a person has decided; ``next_step`` says how to ask."""

    reason: str
    next_step: str = ""
    status: int = 202
    policy: str = ""
    weight: Weight = Weight.HOLD


@dataclass(frozen=True, slots=True)
class Deny:
    """No, with a code and the status it stands for."""

    code: str
    status: int = 403
    detail: str = ""
    next_step: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    policy: str = ""
    weight: Weight = Weight.DENY


Verdict = Allow | Hold | Deny


@dataclass(frozen=True, slots=True)
class Stated:
    """A runner's value together with what the ledger shall say of it: terms and hashes, never contents or tokens."""

    value: Any
    said: Mapping[str, Any]


class Ended(StrEnum):
    """The closed set of how an asking ends."""

    EXECUTED = "executed"
    SHAPED = "shaped"
    HELD = "held"
    REFUSED = "refused"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Outcome:
    """How it ended, and with what: ``value`` of an execution, or the code and status of anything else."""

    ended: Ended
    value: Any = None
    code: str | None = None
    status: int = 200
    detail: str = ""
    next_step: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    charges: tuple[Charge, ...] = ()
    retry_after: int | None = None
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.ended is Ended.EXECUTED or self.ended is Ended.SHAPED

    @classmethod
    def executed(cls, value: Any, charges: tuple[Charge, ...] = ()) -> Outcome:
        """What a runner returned."""
        if isinstance(value, Stated):
            return cls(Ended.EXECUTED, value.value, charges=charges, said=value.said)
        return cls(Ended.EXECUTED, value, charges=charges)

    @classmethod
    def refused(cls, no: Refusal | Deny) -> Outcome:
        wait = no.retry_after if isinstance(no, Refusal) else None
        return cls(
            Ended.REFUSED,
            code=no.code,
            status=no.status,
            detail=no.detail,
            next_step=no.next_step,
            extra=no.extra,
            retry_after=wait,
        )

    @classmethod
    def held(cls, hold: Hold) -> Outcome:
        return cls(Ended.HELD, code=hold.reason, status=hold.status, next_step=hold.next_step)

    @classmethod
    def failed(cls, code: str = "runner_failed", charges: tuple[Charge, ...] = ()) -> Outcome:
        """A runner broke; what it raised goes to the log, not to the caller."""
        return cls(Ended.FAILED, code=code, status=500, detail="the object failed", charges=charges)


@dataclass(slots=True)
class Output:
    """The words of an answer before its receipt exists: their bytes, and the hash the ledger keeps of them.

    ``said`` is what the surface adds to the receipt now that it knows the outcome; hashes and marks, never contents.
    """

    body: bytes
    sha256: str
    extra: Any = None
    said: Mapping[str, Any] = field(default_factory=dict)


class Phrasing(Protocol):
    """How a surface turns an outcome into its answer. Called in the unit, so it only computes."""

    def output(self, operation: Operation, outcome: Outcome) -> Output:
        """The body, whose hash the ledger will hold."""

    def answer(self, operation: Operation, output: Output, receipt: Receipt | None) -> bytes:
        """The whole answer, unsigned, with the receipt beside the body; this is what a repeat is given.

        There is no receipt for a refusal that was only counted.
        """


@dataclass(slots=True)
class Reply:
    """What the road tells the surface.

    ``answer`` is the stored, unsigned answer; ``refusal`` is set instead when nothing was claimed and the surface
    phrases the no by itself; ``repeat`` when this id was spent before: then ``answer`` is the stored one, and only
    to be handed out if ``undelivered``.
    """

    outcome: Outcome
    answer: bytes = b""
    receipt: Receipt | None = None
    operation: Operation | None = None
    refusal: Refusal | None = None
    repeat: bool = False
    undelivered: bool = False
    claim: str | None = None
    group: int = 0
    original: Mapping[str, Any] = field(default_factory=dict)
    stored: bytes | None = None
    """Of a repeat: the first answer, empty while its run lasts; nothing if the id stood for something else."""
