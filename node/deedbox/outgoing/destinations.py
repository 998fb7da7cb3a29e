"""Where a name may be connected to: one resolution, every answer judged, and loopback for development names only.

OIP 1.2 §7.5; ``.test`` is never looked up (RFC 6761 §6.2).
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from deedbox.domains import is_development
from deedbox.outgoing.addresses import Resolver, is_loopback, public_address
from deedbox.outgoing.refusal import OutgoingRefusal

RESOLVE_SECONDS = 2.0
ADDRESSES_TRIED = 3


class DevelopmentTrust(Protocol):
    """Names under ``.test`` that live on this machine, and who vouches for them; only ever an explicit switch."""

    def address(self, host: str) -> tuple[str, int] | None:
        """The loopback literal and port of a registered name, or ``None``."""

    def trust(self) -> ssl.SSLContext:
        """The client context that trusts the local authority and nothing else; the same object until it changes."""


class Destinations:
    """Turns a checked name into address literals that were judged; whoever connects never sees the name."""

    def __init__(self, resolver: Resolver, development: DevelopmentTrust | None) -> None:
        self._resolver = resolver
        self._development = development

    async def of(self, host: str, port: int) -> list[tuple[str, int]]:
        """Where the name may be connected to, best first, never empty; one bad address spoils the whole name."""
        if is_development(host):
            return [self._loopback(host)]
        answers = await self._resolved(host, port)
        addresses = [public_address(answer) for answer in answers]
        allowed = [address for address in addresses if address]
        if len(allowed) < len(addresses):
            raise OutgoingRefusal("address_refused", f"{host} has an address that is not on the public internet")
        return [(address, port) for address in allowed[:ADDRESSES_TRIED]]

    def development_port(self, host: str) -> int | None:
        """The port of a registered development name."""
        place = self._development.address(host) if self._development and is_development(host) else None
        return place[1] if place else None

    async def _resolved(self, host: str, port: int) -> list[str]:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                answers = await self._resolver.resolve(host, port)
        except TimeoutError:
            raise OutgoingRefusal("timed_out", f"looking up {host} took too long") from None
        except OSError:
            answers = []
        if not answers:
            raise OutgoingRefusal("unreachable", f"{host} has no address")
        return answers

    def _loopback(self, host: str) -> tuple[str, int]:
        place = self._development.address(host) if self._development else None
        if place is None:
            raise OutgoingRefusal("unreachable", f"no development node is registered as {host}")
        if not is_loopback(place[0]):
            raise OutgoingRefusal("address_refused", f"{host} is registered outside this machine")
        return place
