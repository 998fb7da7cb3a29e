"""The signed inbox: envelopes from other domains, their answers, the federation ledger and conversations.

Implements OIP 1.2 §8 to §11.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from deedbox import Facet, Job, MessageKind, Object, Plugin, Port, Section, hookimpl
from deedbox import Inbox as InboxPort
from deedbox.envelope.message import MAX_LIFE
from deedbox_inbox import index, kinds
from deedbox_inbox.reading import Reading
from deedbox_inbox.reception import Reception
from deedbox_inbox.record import ExchangeObserver
from deedbox_inbox.routes import routes
from deedbox_inbox.senders import SealedAuthenticator

if TYPE_CHECKING:
    from deedbox import Kernel, Node


class InboxSettings(Section):
    """`echo_unbound`: echo a sealed body that does not say for whom it was sealed (OIP 1.2 §29 W10)."""

    echo_unbound: bool = False
    max_life_seconds: int = Field(MAX_LIFE // 1000, ge=30, le=MAX_LIFE // 1000)


class Inbox(Plugin):
    facet = Facet(
        name="inbox",
        summary="Signed envelopes from other domains, answered by signed envelopes.",
        requires=("wellknown",),
        obligations=(
            "A message id is spent once per sender and recipient; a repeat runs nothing.",
            "Text that arrives is data: only an invoke under a capability runs anything.",
            "Every answer is signed by the agent that was addressed.",
        ),
        non_obligations=("Identity gives no authority.",),
        settings=InboxSettings,
        migrations=Path(__file__).parent / "migrations",
    )

    def __init__(self, kernel: Kernel, settings: InboxSettings) -> None:
        super().__init__(kernel, settings)
        self.reception = Reception(settings.max_life_seconds * 1000)
        self.reading = Reading(kernel.domain, kernel.zone)

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        yield from kinds.objects()
        yield from self.reading.objects()

    @hookimpl
    def deedbox_message_kinds(self) -> Iterable[MessageKind]:
        return kinds.message_kinds()

    @hookimpl
    def deedbox_authenticators(self) -> Iterable[Any]:
        yield SealedAuthenticator(self.kernel.settings, echo_unbound=self.settings.echo_unbound)

    @hookimpl
    def deedbox_policies(self) -> Iterable[Any]:
        yield kinds.MessagePolicy(gated="capabilities" in self.kernel.settings.facets)

    @hookimpl
    def deedbox_observers(self) -> Iterable[Any]:
        yield ExchangeObserver()

    @hookimpl
    def deedbox_jobs(self) -> Iterable[Job]:
        return index.jobs()

    @hookimpl
    def deedbox_ports(self) -> Iterable[Port]:
        yield Port(InboxPort, self.reception)

    @hookimpl
    def deedbox_routes(self) -> Iterable[Any]:
        return routes(self.reception)

    @hookimpl
    def deedbox_services(self) -> Iterable[Any]:
        yield self._attached

    @asynccontextmanager
    async def _attached(self, node: Node) -> AsyncIterator[None]:
        self.reception.node = node
        yield
