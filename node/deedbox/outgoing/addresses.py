"""Which IP addresses the node never connects to, and how a name becomes addresses.

The table follows the IANA special-purpose registries for IPv4 and IPv6 (RFC 6890 and its updates) and adds the metadata
addresses of hosting providers. It is our own because ``ipaddress.is_global`` differs from one Python to the next.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Protocol

_DENIED_4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared with a carrier",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "provider metadata",
    "169.254.0.0/16": "link-local and provider metadata",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments",
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "AS112",
    "192.52.193.0/24": "AMT relays",
    "192.88.99.0/24": "6to4 relays",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "AS112",
    "198.18.0.0/15": "benchmarks",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved and broadcast",
}
_DENIED_6 = {
    "2001::/23": "protocol assignments, Teredo among them",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "2620:4f:8000::/48": "AS112",
    "3ffe::/16": "6bone, given back",
    "3fff::/20": "documentation",
}
# Everything else in IPv6 that is special (loopback, unique local, link- and site-local, multicast, IPv4-compatible,
# both NAT64 prefixes, discard, segment routing, fd00:ec2::254) lies outside the one block given out for global unicast.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_TABLE_4 = tuple((IPv4Network(text), why) for text, why in _DENIED_4.items())
_TABLE_6 = tuple((IPv6Network(text), why) for text, why in _DENIED_6.items())


class Resolver(Protocol):
    """Where the node asks for the addresses of a name."""

    async def resolve(self, host: str, port: int) -> list[str]:
        """All address literals of the name, best first; ``OSError`` if it has none."""


class SystemResolver:
    """The machine's own resolver, in threads of its own so that slow names hold up nothing else."""

    def __init__(self, workers: int = 32) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="resolve")

    async def resolve(self, host: str, port: int) -> list[str]:
        # The trailing dot keeps the resolver from trying the machine's search domains.
        answers = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host + ".", port, type=socket.SOCK_STREAM)
        )
        return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def public_address(literal: str) -> str | None:
    """The address to connect to, an IPv4-mapped one as the IPv4 it is, or ``None`` if the node must not."""
    try:
        address = ip_address(literal)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return None if denied(address) else str(address)


def is_loopback(literal: str) -> bool:
    """Whether this is ``127.0.0.0/8`` or ``::1``."""
    try:
        return ip_address(literal).is_loopback
    except ValueError:
        return False


def denied(address: IPv4Address | IPv6Address) -> str | None:
    """Why the node never connects there, or ``None``."""
    if isinstance(address, IPv4Address):
        return next((why for network, why in _TABLE_4 if address in network), None)
    if address.scope_id is not None or address not in _GLOBAL_UNICAST:
        return "not global unicast"
    return next((why for network, why in _TABLE_6 if address in network), None)
