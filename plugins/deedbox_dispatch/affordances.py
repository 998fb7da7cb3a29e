"""Which moves a credential can make next; a public reader is never told that it may run something (OIP 1.2 §15.8)."""

from __future__ import annotations

from typing import Any

from deedbox import Object, Operation, Outcome
from deedbox_dispatch.links import PLACEHOLDER, Links

SCOPES = ("act", "rows", "row", "pfx", "pool", "read")
NOTE = "only moves this credential can make"


def grant_of(outcome: Outcome) -> dict[str, Any]:
    """What the receipt says of the capability a run was paid with, or nothing."""
    for charge in outcome.charges:
        told = charge.describe()
        if "capability" in told:
            return told
    return {}


def computed_for(operation: Operation, grant: dict[str, Any]) -> str:
    """The word for who may make the moves: the scope of the capability, the owner, or the public."""
    if grant:
        kind = str(grant["scope"]).partition(":")[0]
        return kind if kind in SCOPES else "read"
    return "owner" if operation.principal.kind == "owner" else "public"


def affordances(who: str, found: Object[Any], links: Links) -> dict[str, Any]:
    """The moves, with addresses in which a token's place is marked and never filled."""
    key = found.key
    operations: list[dict[str, Any]] = [
        {"op": "contract", "method": "GET", "href": links.describe(key), "returns": "the object's description"},
        {"op": "confirm", "method": "GET", "href": links.confirm("INV_ID"), "returns": "a public receipt"},
    ]
    if who != "public":
        operations.append({"op": "registry", "method": "GET", "href": links.registry, "returns": "all objects"})
        if who != "owner":
            href = f"{links.door}?explain=1&share={PLACEHOLDER}"
            operations.append({"op": "explain", "method": "GET", "href": href, "returns": "limits and uses left"})
    if who not in ("public", "read", "pool"):
        body = {"key": key, "body": "ARGS"}
        semantics = found.operation_semantics
        operations += [
            {"op": "invoke", "method": "POST", "href": links.door, "expects": body, "semantics": semantics},
            {"op": "shape", "method": "POST", "href": links.door, "expects": {**body, "shape": True}},
        ]
    return {"computed_for": who, "note": NOTE, "operations": operations}


def self_description(found: Object[Any], who: str, links: Links) -> dict[str, Any]:
    """The part of an answer that is enough to use the object again (OIP 1.2 §15.7)."""
    told = found.descriptor
    examples = found.examples
    example = examples[0] if examples else f"[{found.key}][/{found.key}]"
    return {
        "protocol": "OIP",
        "version": "1.2.0",
        "widget": f"object:{found.key}",
        "name": found.key,
        "what": found.summary,
        "run_now": links.invoke(found.key),
        "how": f'POST {{"key":"{found.key}","body":""}}',
        **{name: told[name] for name in ("object_type", "directory_type", "runner", "category", "target")},
        "inputs": told["input_schema"] or {"body": "text"},
        "operation_semantics": told["operation_semantics"],
        "example": example,
        "example_args": example.partition("]")[2].rpartition("[")[0],
        "example_source": "curated" if examples else "derived",
        **{name: told[name] for name in ("auth", "risk", "requires_approval", "status")},
        "affordances": affordances(who, found, links),
        "invoke": {"post": links.door, "body": told["invoke_body"], "router": told["router_tag"]},
        "urls": {"self": links.describe(found.key), "invoke": links.door, "registry": links.registry},
    }


def described(found: Object[Any], links: Links) -> dict[str, Any]:
    """The wire's descriptor with whole addresses (OIP 1.2 §15.2)."""
    return {**found.descriptor, "read": links.describe(found.key), "write": links.door, "invoke": links.door}
