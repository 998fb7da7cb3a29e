"""What a plugin author imports, and nothing else: ``from deedbox import Facet, Plugin, hookimpl``.

Names are loaded when they are first asked for, so that ``deedbox --help`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deedbox.catalog import Arguments, Catalog, Inside, Object, Outside, Text
    from deedbox.facets import Facet, Plugin, hookimpl
    from deedbox.hookspecs import (
        Authenticator,
        Check,
        Document,
        Job,
        MessageKind,
        Observer,
        Page,
        Policy,
        Port,
        Service,
        Transport,
    )
    from deedbox.identity.principal import Anonymous, Assurance, OwnerKey, Principal
    from deedbox.intent import (
        Allow,
        Charge,
        Deny,
        Effect,
        Ended,
        Hold,
        Intent,
        Once,
        Operation,
        Outcome,
        Output,
        Phrasing,
        Proof,
        Reply,
        Stated,
        Verdict,
    )
    from deedbox.kernel import Kernel
    from deedbox.ledger.receipt import Receipt
    from deedbox.node import Node
    from deedbox.ports import AgentRecord, Directory, Inbox
    from deedbox.refusals import Fault, Refusal, Unavailable
    from deedbox.settings import Secret, Section
    from deedbox.storage.group import Ask
    from deedbox.storage.tables import Rows, Table
    from deedbox.storage.unit import Unit

_HOMES = {
    "catalog": ("Arguments", "Catalog", "Inside", "Object", "Outside", "Text"),
    "facets": ("Facet", "Plugin", "hookimpl"),
    "hookspecs": (
        *("Authenticator", "Check", "Document", "Job", "MessageKind", "Observer", "Page", "Policy", "Port"),
        *("Service", "Transport"),
    ),
    "identity.principal": ("Anonymous", "Assurance", "OwnerKey", "Principal"),
    "intent": (
        *("Allow", "Charge", "Deny", "Effect", "Ended", "Hold", "Intent", "Once", "Operation", "Outcome"),
        *("Output", "Phrasing", "Proof", "Reply", "Stated", "Verdict"),
    ),
    "kernel": ("Kernel",),
    "ledger.receipt": ("Receipt",),
    "node": ("Node",),
    "ports": ("AgentRecord", "Directory", "Inbox"),
    "refusals": ("Fault", "Refusal", "Unavailable"),
    "settings": ("Secret", "Section"),
    "storage.group": ("Ask",),
    "storage.tables": ("Rows", "Table"),
    "storage.unit": ("Unit",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AgentRecord",
    "Allow",
    "Anonymous",
    "Arguments",
    "Ask",
    "Assurance",
    "Authenticator",
    "Catalog",
    "Charge",
    "Check",
    "Deny",
    "Directory",
    "Document",
    "Effect",
    "Ended",
    "Facet",
    "Fault",
    "Hold",
    "Inbox",
    "Inside",
    "Intent",
    "Job",
    "Kernel",
    "MessageKind",
    "Node",
    "Object",
    "Observer",
    "Once",
    "Operation",
    "Outcome",
    "Output",
    "Outside",
    "OwnerKey",
    "Page",
    "Phrasing",
    "Plugin",
    "Policy",
    "Port",
    "Principal",
    "Proof",
    "Receipt",
    "Refusal",
    "Reply",
    "Rows",
    "Secret",
    "Section",
    "Service",
    "Stated",
    "Table",
    "Text",
    "Transport",
    "Unavailable",
    "Unit",
    "Verdict",
    "hookimpl",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'deedbox' has no attribute {name!r}")
    value = getattr(import_module(f"deedbox.{home}"), name)
    globals()[name] = value
    return value
