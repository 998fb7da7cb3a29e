"""The node: the kernel plus what the subscribed facets contributed; assembled once, immutable afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

from deedbox.catalog import Catalog
from deedbox.clock import Ids
from deedbox.contributions import KINDS, gather
from deedbox.facets import Facet, Host, Plugin, subscribed
from deedbox.govern.authorise import OwnersRule, PublicDisclosures
from deedbox.govern.books import Books
from deedbox.govern.claims import mark_undelivered
from deedbox.govern.handout import Handout
from deedbox.govern.limits import RefusalEvents, Shield
from deedbox.govern.owner import LocalOwnerAuthenticator, OwnerAuthenticator
from deedbox.govern.pipeline import govern, refuse
from deedbox.govern.processes import Processes
from deedbox.hookspecs import (
    AnnouncingPolicy,
    Authenticator,
    Document,
    Job,
    MessageKind,
    Observer,
    Policy,
    Port,
    Service,
    Transport,
)
from deedbox.identity.principal import Anonymous
from deedbox.intent import Intent, Reply
from deedbox.kernel import Kernel
from deedbox.ledger.chain import Ledger
from deedbox.refusals import Fault, Refusal
from deedbox.storage.database import Database
from deedbox.storage.migrate import histories

Provided = TypeVar("Provided")


@dataclass(frozen=True)
class Node:
    """What a surface talks to."""

    kernel: Kernel
    host: Host
    catalog: Catalog
    policies: tuple[Policy, ...]
    authenticators: Mapping[type, Authenticator]
    message_kinds: Mapping[str, MessageKind]
    documents: Mapping[str, Document]
    observers: tuple[Observer, ...]
    transports: Mapping[str, Transport]
    jobs: Mapping[str, Job]
    services: tuple[Service, ...]
    ports: Mapping[type, Any]
    routes: tuple[Any, ...]
    shield: Shield
    refusal_events: RefusalEvents
    handout: Handout
    processes: Processes

    @property
    def domain(self) -> str:
        return self.kernel.domain

    @cached_property
    def announcing(self) -> tuple[AnnouncingPolicy, ...]:
        """The policies that name the rows they will read."""
        return tuple(each for each in self.policies if isinstance(each, AnnouncingPolicy))

    @cached_property
    def database(self) -> Database:
        return self.kernel.database

    @cached_property
    def ledger(self) -> Ledger:
        return self.kernel.ledger

    @cached_property
    def ids(self) -> Ids:
        return self.kernel.ids

    @cached_property
    def log(self) -> Any:
        return self.kernel.log

    @property
    def facets(self) -> tuple[Facet, ...]:
        return self.host.facets

    async def govern(self, intent: Intent) -> Reply:
        """Ask for something; every surface does this and nothing else."""
        reply = await govern(self, intent)
        self.kernel.metrics.outcomes.add(intent.surface, reply.outcome.ended.value)
        return reply

    async def refuse(self, intent: Intent, refusal: Refusal) -> Reply:
        """Record that something could not even be asked; the surface phrases the refusal."""
        return await refuse(self, intent, refusal)

    def given(self, reply: Reply) -> None:
        """The surface has handed the answer out."""
        if reply.group:
            self.handout.given(reply.group)

    async def not_given(self, reply: Reply) -> None:
        """The caller was gone: its repeat shall be given this answer."""
        if reply.claim:
            await self.database.run(mark_undelivered, reply.claim)
        self.given(reply)

    def present(self, headers: Mapping[str, str]) -> Any:
        """The credential a request carries; headers by lower-case name."""
        for authenticator in self.authenticators.values():
            found = authenticator.present(headers)
            if found is not None:
                return found
        return Anonymous()

    def authenticator(self, credential: type) -> Authenticator:
        try:
            return self.authenticators[credential]
        except KeyError:
            raise Refusal("unauthenticated", 401, "nobody here believes this kind of credential") from None

    def port(self, protocol: type[Provided]) -> Provided:
        """The provider of a port, or a refusal naming what is not subscribed."""
        try:
            return cast("Provided", self.ports[protocol])
        except KeyError:
            raise Refusal(
                "not_subscribed", 501, f"no subscribed facet provides {protocol.__name__}", fault=Fault.OURS
            ) from None

    def observers_of(self, object_key: str) -> tuple[Observer, ...]:
        found = self._observing.get(object_key)
        if found is None:
            found = tuple(each for each in self.observers if not each.transitions or object_key in each.transitions)
            if self.catalog.get(object_key) is not None:
                self._observing[object_key] = found
        return found

    @cached_property
    def _observing(self) -> dict[str, tuple[Observer, ...]]:
        return {}


def facet_classes(tables: Mapping[str, Mapping[str, Any]], extra: Mapping[str, type[Plugin]]) -> list[type[Plugin]]:
    """The plugin classes a deployment subscribes to, in order."""
    return subscribed(tables, extra)


def schema_histories(classes: list[type[Plugin]]) -> Mapping[str, Any]:
    return histories((each.facet.name, each.facet.migrations) for each in classes)


def assemble(kernel: Kernel, classes: list[type[Plugin]]) -> Node:
    """Construct the plugins, ask each hook once, check what they gave, and freeze it."""
    settings = kernel.settings
    host = Host(kernel, classes, settings.facets)
    gathered = {hook: gather(host, hook) for hook in KINDS}
    owners = (OwnerAuthenticator(settings.node.keys), LocalOwnerAuthenticator())
    authenticators = {each.credential: each for each in (*owners, *gathered["deedbox_authenticators"])}
    transports = {scheme: each for each in gathered["deedbox_transports"] for scheme in each.schemes}
    return Node(
        kernel=kernel,
        host=host,
        catalog=Catalog([*Books(kernel.ledger).objects(), *gathered["deedbox_objects"]]),
        policies=(PublicDisclosures(), OwnersRule(), *gathered["deedbox_policies"]),
        authenticators=authenticators,
        message_kinds={each.name: each for each in gathered["deedbox_message_kinds"]},
        documents={each.name: each for each in gathered["deedbox_documents"]},
        observers=tuple(gathered["deedbox_observers"]),
        transports=transports,
        jobs={each.kind: each for each in gathered["deedbox_jobs"]},
        services=tuple(gathered["deedbox_services"]),
        ports={each.protocol: each.provider for each in cast("list[Port]", gathered["deedbox_ports"])},
        routes=tuple(gathered["deedbox_routes"]),
        shield=Shield(settings.limits.shield.address),
        refusal_events=RefusalEvents(),
        handout=Handout(),
        processes=Processes(kernel.ids.new("proc"), shared=not settings.node.database.startswith("sqlite")),
    )
