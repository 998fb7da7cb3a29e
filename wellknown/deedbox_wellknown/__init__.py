"""Who is this domain? Publishes our own answer under ``/.well-known/`` and finds out that of others (RFC 8615)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deedbox import Check, Directory, Document, Facet, Job, Kernel, Object, Plugin, Port, Section, hookimpl
from deedbox.settings import RateText
from deedbox_wellknown import oip
from deedbox_wellknown.copies import prune
from deedbox_wellknown.directory import PeerDirectory
from deedbox_wellknown.pins import changed_keys, confirm_key
from deedbox_wellknown.publish import Publisher

if TYPE_CHECKING:
    from deedbox.hookspecs import Service
    from deedbox.settings import Settings
    from deedbox_wellknown.development import Development


PRUNED_EVERY = 600_000
"""Milliseconds."""


class WellKnownSettings(Section):
    """``new_domains``: how many domains this node has never heard of it will ask in a time."""

    new_domains: RateText = "120/min"


class WellKnown(Plugin):
    """The facet ``wellknown``."""

    facet = Facet(
        name="wellknown",
        summary="Publishes who this domain is, and finds out who others are.",
        obligations=(
            "Every published document is public, and only documents of subscribed facets are published.",
            "A peer's key is taken from its own domain over verified HTTPS, and kept no longer than the peer says.",
            "The first key seen of an agent is remembered; one that replaces it unannounced acts on nothing.",
        ),
        non_obligations=("Whoever controls a domain's names and certificates is taken to be the domain.",),
        settings=WellKnownSettings,
        migrations=Path(__file__).parent / "migrations",
    )

    def __init__(self, kernel: Kernel, settings: WellKnownSettings) -> None:
        super().__init__(kernel, settings)
        self.directory = PeerDirectory(kernel, settings.new_domains)
        self.publisher = Publisher()

    @staticmethod
    def open_development(settings: Settings) -> Development | None:
        """The switch for ``.test`` names, where the settings turn it on; asked before there is a kernel."""
        from deedbox_wellknown.development import Development

        node = settings.node
        return Development(node.domain, node.development) if node.development else None

    @hookimpl
    def deedbox_documents(self) -> Iterable[Document]:
        yield oip.document()

    @hookimpl
    def deedbox_routes(self) -> Iterable[Any]:
        yield self.publisher.route()

    @hookimpl
    def deedbox_ports(self) -> Iterable[Port]:
        yield Port(Directory, self.directory)

    @hookimpl
    def deedbox_services(self) -> Iterable[Service]:
        yield self.directory.running

    @hookimpl
    def deedbox_jobs(self) -> Iterable[Job]:
        yield Job("wellknown_prune", prune, every=PRUNED_EVERY)

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        yield confirm_key(self.kernel)

    @hookimpl
    def deedbox_checks(self) -> Iterable[Check]:
        yield changed_keys()
