"""Who is asking: credentials as presented, principals as believed, and how much a principal's name is worth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Assurance(StrEnum):
    """How firmly a name is tied to somebody (OpenClasp: deliberately unequal)."""

    PSEUDONYMOUS = "pseudonymous"
    DOMAIN = "domain-associated"
    ORGANISATION = "organization-associated"


@dataclass(frozen=True, slots=True)
class Anonymous:
    """No credential at all."""


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """The owner's key as it was presented; still unbelieved. Never printed."""

    secret: str

    def __repr__(self) -> str:
        return "OwnerKey(…)"


@dataclass(frozen=True, slots=True)
class Internal:
    """The node itself acts, because of a receipt; never with more authority than its cause."""

    cause: str


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking, once believed.

    ``id`` is what the ledger names; ``kind`` one of ``owner``, ``peer``, ``bearer``, ``node``, ``anonymous``;
    ``recognised`` whether a refusal deserves an entry of its own (decision 32).
    """

    id: str
    kind: str
    domain: str = ""
    recognised: bool = False
    verified: bool = False
    assurance: Assurance = Assurance.PSEUDONYMOUS
    extra: Any = None


ANONYMOUS = Principal("anonymous", "anonymous")
