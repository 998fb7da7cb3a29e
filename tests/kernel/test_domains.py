"""A domain is one spelling: mapped once at the edge, refused on the wire unless it is that spelling already."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbox.domains import belongs_to, domain_from_config, https_address, https_path, wire_domain
from deedbox.refusals import Refusal

DISGUISED = [
    "ex\u00adample.com",
    "ｅｘａｍｐｌｅ.com",
    "faß.de",
    "a。b.example",
    "münchen.example",
    "exam\u212aple.com",
]
NO_DOMAIN = [
    *("a..b", "-a.example", "a-.example", "xn--a.example", "under_score.example", "ab--cd.example", ".example"),
    *("xn--n3h.example", "xn--.example", "xn--ab-.example", "1\u05d0.example", "", ".", "localhost", "example"),
    *("a" * 64 + ".example", "a." * 126 + "ab", "a b.example", "a\n.example", "a.example\n", "*.example"),
]
ADDRESSES = [
    *(
        "127.1",
        "0x7f.1",
        "2130706433",
        "[::1]",
        "::1",
        "127.0.0.1",
        "0177.0.0.1",
        "169.254.169.254",
        "169.254.169.254.",
    ),
    *("1.2.3.0x4", "a.0x", "a.1", "alpha.example.7", "[fe80::1%25eth0]"),
]
HIDDEN_HOSTS = [
    "legit-bank.example@attacker.example",
    *("alpha.example/x", "alpha.example?x", "alpha.example#x", "alpha.example%2fx", "alpha.example:80"),
    *(" alpha.example ", "alpha.example\\x", "https://alpha.example", "alpha.example\x00"),
]
SPECIAL = ["printer.local", "db.internal", "a.localhost", "a.onion", "1.0.0.127.in-addr.arpa", "a.alt", "a.invalid"]


def refused(name: str, code: str = "bad_domain") -> bool:
    with pytest.raises(Refusal) as caught:
        wire_domain(name)
    return caught.value.code == code


@pytest.mark.case("fed:B8")
def test_a_typed_name_becomes_a_labels() -> None:
    assert domain_from_config("münchen.example") == "xn--mnchen-3ya.example"
    assert domain_from_config(" München.EXAMPLE. ") == "xn--mnchen-3ya.example"
    assert wire_domain("XN--mnchen-3ya.Example") == "xn--mnchen-3ya.example"


@pytest.mark.case("fed:B9")
def test_a_typed_name_is_mapped_once() -> None:
    mapped = [domain_from_config(name) for name in DISGUISED]
    assert mapped == [
        *("example.com", "example.com", "xn--fa-hia.de", "a.b.example", "xn--mnchen-3ya.example", "examkple.com"),
    ]


@pytest.mark.case("fed:B9", "oip:W18", "oip:N9")
@pytest.mark.parametrize("name", DISGUISED)
def test_what_mapping_would_change_is_refused_on_the_wire(name: str) -> None:
    assert refused(name)


@pytest.mark.case("fed:B9", "fed:B11", "fed:F10", "oip:W15", "oip:N9")
@pytest.mark.parametrize("name", [*NO_DOMAIN, *ADDRESSES, *HIDDEN_HOSTS, *SPECIAL, "node.test"])
def test_no_domain_is_refused_on_the_wire(name: str) -> None:
    assert refused(name)


@pytest.mark.case("fed:B9", "fed:B11", "fed:F10")
@pytest.mark.parametrize("name", [*NO_DOMAIN, *ADDRESSES, *HIDDEN_HOSTS, *SPECIAL, "node.test"])
def test_no_domain_is_refused_in_the_configuration(name: str) -> None:
    if name.strip() != name:  # what stands around a typed name is the editor's, not the name's
        name = f"a {name}"
    with pytest.raises(Refusal, match="bad_domain"):
        domain_from_config(name)


@pytest.mark.case("fed:B10")
def test_one_trailing_dot_is_the_root_and_two_are_a_mistake() -> None:
    assert domain_from_config("alpha.example.") == "alpha.example"
    assert https_address("https://alpha.example./x").host == "alpha.example"
    for name in ("alpha.example..", "localhost.", "169.254.169.254."):
        with pytest.raises(Refusal, match="bad_domain"):
            domain_from_config(name)
        with pytest.raises(Refusal, match="bad_domain"):
            https_address(f"https://{name}/")
    assert refused("alpha.example.")  # an id never carries it


def test_ordinary_names_pass() -> None:
    names = ["alpha.example", "a.b.c.example", "xn--fa-hia.de", "4chan.org", "a-b.example", "xn--p1ai.xn--p1ai"]
    assert [wire_domain(name) for name in names] == names
    assert wire_domain("Alpha.EXAMPLE") == "alpha.example"
    longest = ".".join(["a" * 63] * 3 + ["a" * 61])
    assert wire_domain(longest) == longest


def test_the_development_suffix_needs_the_switch() -> None:
    assert wire_domain("alpha.test", development=True) == "alpha.test"
    assert domain_from_config("älpha.test", development=True) == "xn--lpha-koa.test"
    for name in ("test", "127.0.0.1", "a.local", "alpha.test:8443"):
        with pytest.raises(Refusal):
            wire_domain(name, development=True)


@given(st.text(max_size=40) | st.from_regex(r"[a-zäößéд.-]{1,20}\.(de|example|xn--p1ai)", fullmatch=True))
def test_a_mapped_name_is_its_own_wire_form(text: str) -> None:
    try:
        name = domain_from_config(text)
    except Refusal:
        return
    assert wire_domain(name) == domain_from_config(name) == name
    assert name.isascii()
    assert name == name.lower()


@pytest.mark.case("oip:W15", "fed:B11")
def test_an_https_url_comes_apart_into_checked_parts() -> None:
    assert https_address("https://Alpha.Example/oip/inbox?a=b#c") == ("alpha.example", 443, "/oip/inbox?a=b")
    assert https_address("HTTPS://alpha.example") == ("alpha.example", 443, "/")
    assert https_address("https://alpha.example:8443?x") == ("alpha.example", 8443, "/?x")
    assert str(https_address("https://alpha.example:8443/x")) == "https://alpha.example:8443/x"
    assert str(https_address("https://alpha.example:443/x#y")) == "https://alpha.example/x"


@pytest.mark.case("oip:W15", "fed:B11", "fed:F10", "oip:N9")
@pytest.mark.parametrize(
    "url",
    [
        *("http://alpha.example/", "ftp://alpha.example/", "//alpha.example/", "alpha.example", "", "https:///x"),
        *("https://user@alpha.example/", "https://a:b@alpha.example/", "https://alpha.example@attacker.example/"),
        *("https://alpha.example\\@attacker.example/", "https://[::1]/", "https://127.1/", "https://0x7f.1/"),
        *("https://2130706433/", "https://alpha.example:0/", "https://alpha.example:99999/", "https://a.example:/"),
        *("https://alpha.example/ü", "https://alpha.example/a b", "https://alpha.example/\r\nX: y"),
        *("https://alpha.example/a\\b", "https://alpha.local/", "https://alpha.test/", "https://münchen.example/"),
    ],
)
def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(Refusal) as caught:
        https_address(url)
    assert caught.value.code in ("bad_url", "bad_domain")


@pytest.mark.parametrize("path", ["", "x", "/a b", "/a#b", "/a\r\nHost: b", "/ü", "/a\\b", "/a\n"])
def test_a_path_that_breaks_a_request_line_is_refused(path: str) -> None:
    with pytest.raises(Refusal, match="bad_url"):
        https_path(path)


@pytest.mark.case("oip:W16")
def test_an_inbox_lies_on_the_domain_or_below_it() -> None:
    assert belongs_to("alpha.example", "alpha.example")
    assert belongs_to("inbox.alpha.example", "alpha.example")
    for host in ("attacker.example", "notalpha.example", "alpha.example.attacker.example", "example"):
        assert not belongs_to(host, "alpha.example")
