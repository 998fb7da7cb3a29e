"""Which texts are ids of agents on the wire."""

from __future__ import annotations

import pytest

from deedbox.identity.agent_id import parse_agent_id


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("alice@peer.example", ("alice", "peer.example")),
        ("Planner@Alpha.Example", ("planner", "alpha.example")),
        ("a.B_c+d-9@xn--mnchen-3ya.example", ("a.b_c+d-9", "xn--mnchen-3ya.example")),
        ("a" * 64 + "@a.b", ("a" * 64, "a.b")),
        ("a@" + "a" * 63 + ".1.b", ("a", "a" * 63 + ".1.b")),
        ("a@" + "a." * 125 + "com", ("a", "a." * 125 + "com")),
    ],
)
def test_agent_ids(text: str, read: tuple[str, str]) -> None:
    assert parse_agent_id(text) == read


@pytest.mark.case("oip:W18")
@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "@peer.example",
        "alice",
        "alice@",
        "alice@localhost",
        "a@b@peer.example",
        "a b@peer.example",
        "a\n@peer.example",
        "alice@peer.example\n",
        "älice@peer.example",
        "\u212aelvin@peer.example",
        "alice@peer.exam\u212ble",
        "alice@münchen.example",
        "alice@peer.example.",
        "alice@peer.example..",
        "alice@.peer.example",
        "alice@a..b",
        "alice@-a.example",
        "alice@a-.example",
        "alice@under_score.example",
        "alice@peer.example:443",
        "alice@peer.example/x",
        "alice@peer.example#x",
        "alice@peer.example%2f",
        "alice@127.0.0.1",
        "alice@127.1",
        "alice@0x7f.0.0.1",
        "alice@0x7f.0x1",
        "alice@1.2.3.0x4",
        "alice@169.254.169.254.",
        "alice@2130706433",
        "alice@[::1]",
        "alice@peer.1",
        "a" * 65 + "@a.b",
        "a@" + "a" * 64 + ".b",
        "a@" + "a." * 126 + "com",
    ],
)
def test_what_is_no_agent_id(text: object) -> None:
    assert parse_agent_id(text) is None
