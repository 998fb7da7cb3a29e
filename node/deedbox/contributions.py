"""Gathering what the facets yield: each hook asked once, each value checked, each double refused with both names.

A value of the wrong shape stops the node from starting instead of breaking the first message (architecture §2).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler

from deedbox.catalog import Inside, Object, Outside
from deedbox.facets import Host
from deedbox.hookspecs import Document, Job, MessageKind, Port
from deedbox.refusals import Fault, Refusal

Shape = Callable[[Any], bool]
Marks = Callable[[Any], Iterable[Hashable]]


def _having(**parts: type | Callable[[Any], bool]) -> Shape:
    """Whether a value has these attributes, each of a type or passing a test."""

    def fits(value: Any) -> bool:
        for name, wanted in parts.items():
            found = getattr(value, name, None)
            if not (isinstance(found, wanted) if isinstance(wanted, type) else wanted(found)):
                return False
        return True

    return fits


def _none(value: Any) -> Iterable[Hashable]:
    return ()


def _doors(route: Any) -> Iterator[Hashable]:
    """The exact paths a handler answers; one that names methods shares a path with others."""
    if isinstance(route, ASGIRouteHandler):
        yield from route.paths
    elif isinstance(route, HTTPRouteHandler):
        yield from ((path, method) for path in route.paths for method in route.http_methods)


def _is_object(value: Any) -> bool:
    return isinstance(value, Object) and isinstance(value.runner, Inside | Outside)


@dataclass(frozen=True)
class Kind:
    """What a hook may yield, and what makes two of them the same."""

    fits: Shape
    marks: Marks = _none


KINDS: dict[str, Kind] = {
    "deedbox_objects": Kind(_is_object),
    "deedbox_authenticators": Kind(
        _having(credential=type, present=callable, prepare=callable, believe=callable),
        lambda value: (value.credential,),
    ),
    "deedbox_documents": Kind(lambda value: isinstance(value, Document), lambda value: (value.name,)),
    "deedbox_jobs": Kind(lambda value: isinstance(value, Job), lambda value: (value.kind,)),
    "deedbox_message_kinds": Kind(lambda value: isinstance(value, MessageKind), lambda value: (value.name,)),
    "deedbox_observers": Kind(
        _having(name=str, changes_rows=bool, observe=callable, transitions=lambda found: found is None or bool(found))
    ),
    "deedbox_policies": Kind(_having(name=str, judge=callable), lambda value: (value.name,)),
    "deedbox_ports": Kind(lambda value: isinstance(value, Port), lambda value: (value.protocol,)),
    "deedbox_routes": Kind(lambda value: True, _doors),
    "deedbox_services": Kind(callable),
    "deedbox_transports": Kind(_having(schemes=tuple, deliver=callable), lambda value: value.schemes),
}
"""The hooks the node itself consumes; the command line asks for commands by itself."""


def gather(host: Host, hook: str) -> list[Any]:
    """The values of a hook, in the order of subscription; refuses ``bad_contribution``, ``duplicate_contribution``."""
    kind = KINDS[hook]
    owners: dict[Hashable, str] = {}
    values = []
    for facet, value in host.contributions(hook):
        if not kind.fits(value):
            raise Refusal(
                "bad_contribution", 500, f"{facet.name}: {hook}: {value!r} is not what the hook takes", fault=Fault.OURS
            )
        for mark in kind.marks(value):
            if mark in owners:
                told = f"{hook}: {_named(mark)} comes from {owners[mark]} and {facet.name}"
                raise Refusal("duplicate_contribution", 500, told, fault=Fault.OURS)
            owners[mark] = facet.name
        values.append(replace(value, facet=facet.name) if isinstance(value, Object) else value)
    return values


def _named(mark: Hashable) -> str:
    return mark.__name__ if isinstance(mark, type) else str(mark)
