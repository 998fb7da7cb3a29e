"""OIP's door, /api/dispatch: find an object, run it under a capability, confirm that it ran (OIP 1.2 §16 to §18)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from deedbox import Deny, Facet, Object, Operation, Plugin, Unit, hookimpl
from deedbox.govern.limits import Shield
from deedbox_dispatch.documents import Documents
from deedbox_dispatch.routes import door

if TYPE_CHECKING:
    from deedbox import Kernel


class Dispatch(Plugin):
    """The facet ``dispatch``."""

    facet = Facet(
        name="dispatch",
        summary="One address at which any object is found, run and confirmed.",
        obligations=(
            "What a request is run as follows from its credential alone; nothing in its body changes it.",
            "No answer holds a token but the one that makes it.",
            "The owner's key is taken from a header and refused in a URL.",
        ),
        non_obligations=("A confirmation shows commitments, never contents.",),
    )

    def __init__(self, kernel: Kernel, settings: Any) -> None:
        super().__init__(kernel, settings)
        self._documents = Documents(kernel)

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        return self._documents.objects()

    @hookimpl
    def deedbox_policies(self) -> Iterable[Any]:
        yield DoorPolicy()

    @hookimpl
    def deedbox_routes(self) -> Iterable[Any]:
        yield door(Shield(self.kernel.settings.limits.dispatch.shield))


class DoorPolicy:
    """What the registry does not show cannot be named here; what is not public, nobody runs without a credential."""

    name = "dispatch-door"

    def judge(self, unit: Unit, operation: Operation) -> Deny | None:
        intent, found = operation.intent, operation.object
        if intent.surface != "dispatch" or intent.subject.get("action") != "invoke" or found is None:
            return None
        if not found.listed:
            near = operation.catalog.near(intent.object_key) if operation.catalog else []
            extra = {"attempted": intent.object_key[:64], "did_you_mean": near}
            return Deny("unknown_object", 404, "there is no such object here", extra=extra, policy=self.name)
        if operation.principal.kind == "anonymous" and not found.public:
            step = "send Authorization: Bearer with a capability"
            return Deny("unauthorized", 401, "no credential", next_step=step, extra={"ran": False}, policy=self.name)
        return None
