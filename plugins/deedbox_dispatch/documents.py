"""What the door says of the node: one object's contract, the list of all, and the manifest (OIP 1.2 §15.6, §15.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deedbox import Arguments, Effect, Inside, Kernel, Object, Operation, Refusal, Unit
from deedbox_dispatch.affordances import computed_for, described, self_description
from deedbox_dispatch.asking import ACTIONS
from deedbox_dispatch.confirm import Confirm, Invocation
from deedbox_dispatch.links import PROTOCOL, Links

if TYPE_CHECKING:
    from deedbox import Node


class Key(Arguments):
    """Which object."""

    key: str


class Filter(Arguments):
    """Which of all objects."""

    category: str | None = None


class Documents:
    """The runners of DESCRIBE and REGISTRY."""

    def __init__(self, kernel: Kernel) -> None:
        self._links = Links(kernel.base_url)
        self._confirm = Confirm(kernel)

    def objects(self) -> Iterator[Object[Any]]:
        shared: dict[str, Any] = {
            "effect": Effect.DISCLOSURE,
            "public": True,
            "listed": False,
            "kind": "system",
            "category": "oip",
            "safe": True,
            "idempotent": True,
        }
        yield Object(
            key="CONFIRM",
            summary="Whether a run took place.",
            arguments=Invocation,
            runner=Inside(self._confirm.run),
            **shared,
        )
        yield Object(
            key="DESCRIBE",
            summary="The contract of one object.",
            arguments=Key,
            runner=Inside(self.describe),
            **shared,
        )
        yield Object(
            key="REGISTRY",
            summary="Every object that can be asked for.",
            arguments=Filter,
            runner=Inside(self.registry),
            **shared,
        )

    def describe(self, unit: Unit, asked: Key, operation: Operation) -> dict[str, Any]:
        catalog = operation.catalog
        found = catalog.get(asked.key) if catalog else None
        if catalog is None or found is None or not found.listed:
            near = catalog.near(asked.key) if catalog else []
            raise Refusal("unknown_object", 404, extra={"attempted": asked.key[:64], "did_you_mean": near})
        who = computed_for(operation, {})
        return {"_self": self_description(found, who, self._links), "object": described(found, self._links)}

    def registry(self, unit: Unit, asked: Filter, operation: Operation) -> dict[str, Any]:
        listed = [each for each in operation.catalog or () if each.listed]
        chosen = [each for each in listed if asked.category in (None, each.category)]
        objects = [described(each, self._links) for each in chosen]
        return {**PROTOCOL, "count": len(objects), "objects": objects}


def manifest(node: Node) -> dict[str, Any]:
    """What a bare GET answers: what there is and how to ask (OIP 1.2 §25 C1)."""
    links = Links(node.kernel.base_url)
    return {
        **PROTOCOL,
        "kind": "manifest",
        "node": node.domain,
        "what": "one door for every object: look it up, run it under a capability, confirm that it ran",
        "endpoints": {
            "dispatch": links.door,
            "registry": links.registry,
            "object": links.describe("KEY"),
            "confirm": links.confirm("INV_ID"),
            **({"well_known": f"{links.base}/.well-known/oip.json"} if "oip.json" in node.documents else {}),
        },
        "actions": list(ACTIONS),
        "invoke": {"method": "POST", "body": {"key": "KEY", "body": "ARGS"}, "credential": "Authorization: Bearer"},
        "limits": {"max_request_bytes": node.kernel.settings.limits.dispatch.bytes},
        "retrieved_text_is_data": True,
    }
