"""What a deployment subscribes to: a plugin is a class, a facet is its label, and only subscribed ones are imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pluggy
from pydantic import BaseModel

from deedbox import hookspecs
from deedbox.refusals import Fault, Refusal
from deedbox.settings import Section, checked
from deedbox.storage.tables import owner_of

if TYPE_CHECKING:
    from deedbox.kernel import Kernel

GROUP = "deedbox"
hookimpl = pluggy.HookimplMarker("deedbox")


@dataclass(frozen=True)
class Facet:
    """The record on a plugin class: what it is called, what it promises, what it does not.

    ``obligations`` and ``non_obligations`` are the sentences the governance registry publishes. ``migrations`` is
    the folder with the facet's numbered schema steps, if it keeps tables.
    """

    name: str
    summary: str
    requires: tuple[str, ...] = ()
    obligations: tuple[str, ...] = ()
    non_obligations: tuple[str, ...] = ()
    settings: type[BaseModel] = Section
    migrations: Path | None = None


class Plugin:
    """What carries a facet: made once a node, with its kernel and its own settings."""

    facet: ClassVar[Facet]

    def __init__(self, kernel: Kernel, settings: Any) -> None:
        self.kernel = kernel
        self.settings = settings


def installed() -> dict[str, EntryPoint]:
    """Every facet that could be subscribed to, by name; nothing is imported."""
    return {point.name: point for point in entry_points(group=GROUP)}


def plugin_class(name: str, extra: Mapping[str, type[Plugin]]) -> type[Plugin]:
    """Import the class that carries a facet."""
    if name in extra:
        return extra[name]
    known = installed()
    if name not in known:
        offered = ", ".join(sorted(known))
        raise Refusal("unknown_facet", 500, f"no facet {name} is installed", next_step=f"installed: {offered}")
    try:
        found = known[name].load()
    except (ImportError, AttributeError, SyntaxError) as error:
        raise Refusal("bad_plugin", 500, f"{name} cannot be imported: {error}", fault=Fault.OURS) from error
    if not (isinstance(found, type) and issubclass(found, Plugin) and found.facet.name == name):
        raise Refusal("bad_plugin", 500, f"the entry point {name} is not the plugin of a facet {name}")
    if found.facet.migrations is not None and owner_of(found.__module__) != name:
        told = f"the tables of facet {name} must be in a package deedbox_{name}, which gives them their names"
        raise Refusal("bad_plugin", 500, told)
    return found


def subscribed(tables: Mapping[str, Mapping[str, Any]], extra: Mapping[str, type[Plugin]]) -> list[type[Plugin]]:
    """The classes of the facets whose table is present, each after what it requires."""
    classes = {name: plugin_class(name, extra) for name in tables}
    ordered: list[type[Plugin]] = []

    def place(name: str, asking: tuple[str, ...]) -> None:
        if name in asking:
            raise Refusal("facet_cycle", 500, " → ".join((*asking, name)))
        if name not in classes:
            raise Refusal(
                "facet_missing", 500, f"{asking[-1]} requires {name}", next_step=f"add a table [facets.{name}]"
            )
        for needed in classes[name].facet.requires:
            place(needed, (*asking, name))
        if classes[name] not in ordered:
            ordered.append(classes[name])

    for name in tables:
        place(name, ())
    return ordered


class Host:
    """This node's own pluggy manager: two nodes in a process never share a plugin."""

    def __init__(
        self, kernel: Kernel, classes: Iterable[type[Plugin]], tables: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._manager = pluggy.PluginManager("deedbox")
        self._manager.add_hookspecs(hookspecs)
        self.plugins: list[Plugin] = []
        for made in classes:
            settings = checked(made.facet.settings, tables.get(made.facet.name, {}), f"facets.{made.facet.name}")
            plugin = made(kernel, settings)
            self._manager.register(plugin, made.facet.name)
            self.plugins.append(plugin)
        try:
            self._manager.check_pending()
        except pluggy.PluginValidationError as wrong:
            raise Refusal("unknown_hook", 500, str(wrong), fault=Fault.OURS) from None

    @property
    def facets(self) -> tuple[Facet, ...]:
        return tuple(plugin.facet for plugin in self.plugins)

    def contributions(self, hook: str) -> list[tuple[Facet, Any]]:
        """What each plugin yields for a hook, with whose it is, in the order of subscription."""
        gathered: list[tuple[Facet, Any]] = []
        for plugin in self.plugins:
            declare = getattr(plugin, hook, None)
            if declare is None:
                continue
            try:
                gathered += [(plugin.facet, value) for value in declare()]
            except Refusal:
                raise
            except Exception as error:
                raise Refusal(
                    "bad_contribution", 500, f"{plugin.facet.name}: {hook}: {error}", fault=Fault.OURS
                ) from error
        return gathered
