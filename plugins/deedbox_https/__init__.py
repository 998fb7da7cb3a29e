"""Facet ``https``: messages leave by HTTPS, from the outbox to the inbox a domain publishes (OIP 1.2 §12.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from deedbox import Effect, Facet, Job, Object, Outside, Plugin, Refusal, hookimpl
from deedbox.delivery import DELIVERY_JOBS, FED_SENT
from deedbox_https.policy import OutboxAlone
from deedbox_https.sending import DEADLINE, SEND, OwnersVoice, Sending, sender
from deedbox_https.transport import HttpsTransport

if TYPE_CHECKING:
    from deedbox import Kernel, Node


class Https(Plugin):
    """Delivers envelopes to inboxes whose address begins with ``https:``."""

    facet = Facet(
        name="https",
        summary="Delivers signed messages to other domains, and keeps trying for five days.",
        obligations=(
            "Sends the same message again, never a new one in its place.",
            "Believes a reply only from the agent addressed, about the message sent.",
        ),
        non_obligations=("Promises no order between messages.",),
    )

    def __init__(self, kernel: Kernel, settings: Any) -> None:
        super().__init__(kernel, settings)
        self._serving: Node | None = None

    def node(self) -> Node:
        """The node while it serves, or a refusal: what is not running sends nothing."""
        if self._serving is None:
            raise Refusal("not_serving", 503, "this node is not running")
        return self._serving

    @hookimpl
    def deedbox_transports(self) -> Iterator[HttpsTransport]:
        yield HttpsTransport(development=self.kernel.settings.node.development is not None)

    @hookimpl
    def deedbox_jobs(self) -> Iterator[Job]:
        yield from DELIVERY_JOBS

    @hookimpl
    def deedbox_objects(self) -> Iterator[Object[Any]]:
        yield FED_SENT
        yield Object(
            key=SEND,
            summary="Send a signed message to an agent, and tell its reply.",
            effect=Effect.EXECUTION,
            arguments=Sending,
            runner=Outside(sender(self.node), DEADLINE),
            sensitive=True,
            listed=False,
            kind="system",
            category="oip",
            safe=False,
            idempotent=False,
        )

    @hookimpl
    def deedbox_policies(self) -> Iterator[Any]:
        yield OutboxAlone()
        yield OwnersVoice()

    @hookimpl
    def deedbox_services(self) -> Iterator[Any]:
        yield self._attached

    @asynccontextmanager
    async def _attached(self, node: Node) -> AsyncIterator[None]:
        self._serving = node
        yield
        self._serving = None
