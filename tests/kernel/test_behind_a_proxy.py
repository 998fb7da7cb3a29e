"""Behind proxies of our own the caller's address is the one our nearest proxy saw, never one a stranger wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deedbox import web
from deedbox.testing import RunningNode

OURS = {"127.0.0.1", "10.0.0.2"}


@pytest.mark.parametrize(
    ("client", "forwarded", "caller"),
    [
        ("127.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "10.0.0.2", "127.0.0.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
    ],
)
def test_the_callers_address(client: str, forwarded: str, caller: str) -> None:
    scope: dict[str, Any] = {"client": (client, 1), "headers": [(b"x-forwarded-for", forwarded.encode())]}
    web.behind(scope, OURS)
    assert web.address(scope) == caller


def test_a_line_a_proxy_adds_outweighs_the_strangers_own() -> None:
    """Some append to the header, others add a second one (HAProxy ``option forwardfor``)."""
    lines = [(b"x-forwarded-for", b"203.0.113.9"), (b"x-forwarded-for", b"198.51.100.7")]
    scope: dict[str, Any] = {"client": ("127.0.0.1", 1), "headers": lines}
    web.behind(scope, OURS)
    assert web.address(scope) == "198.51.100.7"


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::7]:4711", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("a:b:c", "abc"),
        ("", ""),
    ],
)
def test_what_a_shield_counts_together(client: str, counted: str) -> None:
    scope: dict[str, Any] = {"client": (client, 1), "headers": []}
    assert web.address(scope) == counted
    assert web.client(scope) == client


def test_a_proxys_neighbour_is_no_proxy() -> None:
    scope: dict[str, Any] = {"client": ("2001:db8::2", 1), "headers": [(b"x-forwarded-for", b"198.51.100.7")]}
    web.behind(scope, {"2001:db8::1"})
    assert web.client(scope) == "2001:db8::2"


async def test_two_callers_of_one_proxy_have_a_shield_each(
    a_node: Callable[..., Awaitable[RunningNode]],
) -> None:
    limits = {"shield": {"address": "4/min"}}
    here = await a_node(facets={"wellknown": {}, "inbox": {}}, node={"trusted_proxies": ["127.0.0.1"]}, limits=limits)
    one = [(await here.get("/oip/ledger", x_forwarded_for="198.51.100.7")).status for _ in range(5)]
    other = await here.get("/oip/ledger", x_forwarded_for="198.51.100.8")
    assert one == [200, 200, 200, 200, 429]
    assert other.status == 200
