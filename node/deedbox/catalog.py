"""What the node can be asked to do: offered once, seen on every surface."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from deedbox.canonical import admit, digest
from deedbox.intent import Effect, Operation
from deedbox.refusals import Fault, Refusal
from deedbox.settings import worded
from deedbox.storage.unit import Unit


class Arguments(BaseModel):
    """The arguments of an object: a closed set of named values."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Text(Arguments):
    """The one argument of a plain OIP object: a string (OIP 1.2 §16.3)."""

    text: str = ""


Given = TypeVar("Given", bound=Arguments)

_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")

PROMISED = (
    *("id", "object_type", "runner", "directory_type", "category", "target", "description", "input_schema"),
    *("auth", "risk", "requires_approval", "status", "operation_semantics"),
)
"""The members of a descriptor that are its contract (OIP 1.2 §15.5)."""


def contract_hash(descriptor: Mapping[str, Any]) -> str:
    """64 hex over the canonical form of what a descriptor promises (OIP 1.2 §15.5)."""
    return digest({name: descriptor[name] for name in PROMISED})


@dataclass(frozen=True, slots=True)
class Inside(Generic[Given]):
    """A runner that works in the open unit: effect and receipt are kept together or not at all.

    It returns text or any JSON value, or ``Stated`` where the ledger shall say more of it than hashes. A ``Refusal`` it
    raises is the answer; whatever else it raises is ``failed``. Either way what it did is undone.
    """

    call: Callable[[Unit, Given, Operation], Any]


@dataclass(frozen=True, slots=True)
class Outside(Generic[Given]):
    """A runner that leaves the process; it holds no transaction and has a deadline in seconds.

    Its start is committed before it is called. Whatever it raises is ``failed``, with the code of a ``Refusal``.
    """

    call: Callable[[Given, Operation], Awaitable[Any]]
    deadline: float = 30.0


@dataclass(frozen=True)
class Object(Generic[Given]):
    """One thing the node can be asked to do.

    ``public``: a disclosure anybody may ask for. ``sensitive``: its risk is high. ``listed``: shown in the registry.
    ``semantics``: the wire's operation contract (OIP 1.2 §15.3). A key is ``[A-Za-z0-9_-]{1,64}`` (§14.2).
    """

    key: str
    summary: str
    effect: Effect
    arguments: type[Given]
    runner: Inside[Given] | Outside[Given]
    public: bool = False
    sensitive: bool = False
    listed: bool = True
    kind: str = "tool"
    category: str = "system"
    safe: bool | None = None
    idempotent: bool | None = None
    examples: tuple[str, ...] = ()
    semantics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    facet: str = ""

    @cached_property
    def descriptor(self) -> dict[str, Any]:
        """The wire's description of the object (OIP 1.2 §15.2)."""
        return {
            "id": self.key,
            "object_type": self.kind,
            "runner": "fn",
            "directory_type": "fn",
            "category": self.category,
            "target": None,
            "description": self.summary,
            "read": f"/api/dispatch?key={self.key}",
            "write": None,
            "invoke": "/api/dispatch",
            "invoke_body": {"key": self.key, "body": ""},
            "router_tag": f"[{self.key}]args[/{self.key}]",
            "input_schema": None if self.arguments is Text else self.arguments.model_json_schema(),
            "examples": list(self.examples) or None,
            "auth": "none" if self.public else "required",
            "risk": "high" if self.sensitive else "low",
            "requires_approval": False,
            "status": "active",
            "ledger_enabled": True,
            "operation_semantics": self.operation_semantics,
        }

    @cached_property
    def operation_semantics(self) -> dict[str, Any]:
        """OIP 1.2 §15.3."""
        said = self.semantics
        return {
            "operation_type": "invokeaction",
            "safe": self.safe,
            "idempotent": self.idempotent,
            "preconditions": list(said.get("preconditions", ("the caller may invoke this object",))),
            "effects": list(said.get("effects", ("none" if self.effect is Effect.DISCLOSURE else "changes the node",))),
            "postconditions": list(said.get("postconditions", ("a receipt is kept",))),
        }

    @cached_property
    def contract(self) -> str:
        """The contract's fingerprint: any change of what the object promises changes it."""
        return contract_hash(self.descriptor)

    def accept(self, given: Any) -> Given:
        """The arguments, valid, or a refusal naming what is wrong; a bare string is the text of a plain object."""
        if isinstance(given, self.arguments):
            return given
        if isinstance(given, str):
            if issubclass(self.arguments, Text):
                return self.arguments.model_construct(text=given)
            given = admit(given.encode()) if given else {}
        try:
            return self.arguments.model_validate(given or {})
        except ValidationError as wrong:
            first = wrong.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "arguments"
            raise Refusal("bad_arguments", 400, f"{self.key}: {where}: {worded(first)}") from None


class Catalog:
    """Every object of the subscribed facets, by key."""

    def __init__(self, objects: Iterable[Object[Any]]) -> None:
        self._objects: dict[str, Object[Any]] = {}
        for offered in objects:
            if not _KEY.fullmatch(offered.key):
                told = f"{offered.facet}: {offered.key!r}: a key is 1 to 64 of A-Z a-z 0-9 _ -"
                raise Refusal("bad_contribution", 500, told, fault=Fault.OURS)
            if offered.key in self._objects:
                other = self._objects[offered.key].facet
                raise Refusal(
                    "duplicate_object",
                    500,
                    f"{offered.key} is offered by {other} and {offered.facet}",
                    fault=Fault.OURS,
                )
            self._objects[offered.key] = offered

    def __iter__(self) -> Iterator[Object[Any]]:
        return iter(sorted(self._objects.values(), key=lambda each: (each.category, each.key)))

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> Object[Any] | None:
        return self._objects.get(key)

    def near(self, key: str) -> list[str]:
        """At most six keys somebody may have meant; suggesting runs nothing (OIP 1.2 §16.6)."""
        wanted = key.casefold()
        listed = [each.key for each in self if each.listed]
        inside = [each for each in listed if wanted and (wanted in each.casefold() or each.casefold() in wanted)]
        folded = {each.casefold(): each for each in listed}
        close = [folded[each] for each in difflib.get_close_matches(wanted, folded, n=6, cutoff=0.6)]
        return list(dict.fromkeys(inside + close))[:6]
