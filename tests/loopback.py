"""Keeps a test process on this machine: every way out is refused and remembered (PEP 578 audit hooks)."""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

import uvloop

escapes: list[str] = []
"""Addresses outside this machine that the running test tried to reach."""


def is_here(host: object) -> bool:
    """Whether a host is this machine's loopback, or no host at all."""
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
    if name in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_literal(host: object) -> bool:
    """Whether looking the host up needs no question to anybody: an address already."""
    try:
        ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return is_here(host)
    return True


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: refuses, and remembers, every way out of this machine (PEP 578; table of CPython's events)."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        if isinstance(address, tuple) and not is_here(address[0]):
            refuse(event, address[0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and not is_literal(arguments[0]):
        refuse(event, arguments[0])


def refuse(event: str, host: object) -> None:
    escapes.append(f"{event} {host!r}")
    raise ConnectionRefusedError(f"tests stay on loopback: {event} {host!r}")


class WatchedLoop(uvloop.Loop):
    """uvloop opens its sockets in C, where no audit hook sees it."""

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, *rest: Any, **options: Any
    ) -> Any:
        watch("socket.connect", (None, (host, 0)))
        return await super().create_connection(factory, host, *rest, **options)

    async def create_datagram_endpoint(  # type: ignore[override]
        self, factory: Any, *rest: Any, **options: Any
    ) -> Any:
        watch("socket.connect", (None, options.get("remote_addr")))
        return await super().create_datagram_endpoint(factory, *rest, **options)


def install() -> None:
    """From now on, for the life of this process."""
    sys.addaudithook(watch)
    uvloop.Loop = WatchedLoop  # type: ignore[misc]
