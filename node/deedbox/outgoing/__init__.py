"""The only way out to other nodes: addresses checked before a packet leaves, sizes and times bounded (OIP 1.2 §7.5)."""

from __future__ import annotations

from deedbox.outgoing.addresses import Resolver, SystemResolver
from deedbox.outgoing.answers import Answer, Fetched
from deedbox.outgoing.client import DISCOVERY_LIMIT, DOCUMENT_LIMIT, Outgoing
from deedbox.outgoing.destinations import DevelopmentTrust
from deedbox.outgoing.refusal import OutgoingRefusal

__all__ = [
    "DISCOVERY_LIMIT",
    "DOCUMENT_LIMIT",
    "Answer",
    "DevelopmentTrust",
    "Fetched",
    "Outgoing",
    "OutgoingRefusal",
    "Resolver",
    "SystemResolver",
]
