"""Token strings, scopes, audiences and the root secret, without a node."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from deedbox import Refusal
from deedbox_capabilities.root import FILE, root_secret
from deedbox_capabilities.scopes import allows, audience_matches, is_scope, scope_of
from deedbox_capabilities.tokens import Token, TokenKey, fingerprint
from tests.facets.door import vector

TOKENS = vector("capability-tokens")
GOOD = [each for each in TOKENS["tokens"] if each["name"] != "DELIMITER INJECTION"]
INJECTED = next(each for each in TOKENS["tokens"] if each["name"] == "DELIMITER INJECTION")
NARROWING = vector("narrowing")
KEY = TokenKey(TOKENS["secret_utf8"].encode())


def named(each: Any) -> str:
    return str(each["name"])


@pytest.mark.parametrize("each", GOOD, ids=named)
def test_a_token_of_the_vectors_verifies(each: dict[str, Any]) -> None:
    token, fields = KEY.read(each["token"]), each["fields"]
    assert token is not None
    assert token.fingerprint == each["fingerprint"]
    assert (token.expires_at, token.scope) == (fields["exp"], fields["scope"])
    assert (token.uses, token.nonce) == (fields["uses"], fields["nonce"])
    assert token.expired(1_767_323_045_678) == (each["name"] == "expired")


@pytest.mark.parametrize("each", [each for each in GOOD if not each["name"].startswith("legacy")], ids=named)
def test_a_token_of_the_vectors_is_made_again(each: dict[str, Any]) -> None:
    fields = each["fields"]
    made = KEY.issue(expires_at=fields["exp"], scope=fields["scope"], uses=fields["uses"], nonce=fields["nonce"])
    assert made.text == each["token"]
    assert each["token"] not in repr(made)


@pytest.mark.case("oip:N1", "oip:W20")
def test_a_scope_with_fields_of_its_own_is_neither_made_nor_read() -> None:
    assert fingerprint(INJECTED["token"]) == INJECTED["fingerprint"]
    assert KEY.read(INJECTED["token"]) is None
    with pytest.raises(Refusal, match="bad_scope"):
        KEY.issue(expires_at=1, scope=INJECTED["fields"]["scope"], uses=1, nonce=INJECTED["fields"]["nonce"])


@pytest.mark.case("oip:W20")
@pytest.mark.parametrize(
    "payload",
    [
        "sh.1767323645.row:NOW.3",  # a field too few
        "sh.1767323645.row:NOW.3.AAECAwQFBgcI.AAECAwQFBgcI",  # one too many
        "sh.1767323645.rows:.0.AAECAwQFBgcI",
        "sh.1767323645.row:NOW,UPPER.0.AAECAwQFBgcI",
        "sh.1767323645.everything.0.AAECAwQFBgcI",
        "sh.1767323645.pfx:.0.AAECAwQFBgcI",
        "sh.1767323645.act.1234567.AAECAwQFBgcI",
        "sh.1767323645.act.0.short",
        "sh.١٧٦٧٣٢٣٦٤٥.act.0.AAECAwQFBgcI",  # digits that are not decimal ASCII
        "sh.-1.act.0.AAECAwQFBgcI",
        "SH.1767323645.act.0.AAECAwQFBgcI",
        "sh.1767323645.row:" + "A" * 65 + ".0.AAECAwQFBgcI",
    ],
)
def test_whatever_has_a_good_mac_and_another_shape_is_no_token(payload: str) -> None:
    assert KEY.read(f"{payload}.{KEY._mac(payload)}") is None


@pytest.mark.parametrize("place", range(0, 80, 7))
def test_one_altered_character_spoils_a_token(place: int) -> None:
    text = GOOD[0]["token"]
    altered = text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1 :]
    assert KEY.read(altered) is None
    assert KEY.read(text + "\n") is None
    assert KEY.read("sh." * 5_000) is None


@pytest.mark.case("oip:W2")
def test_the_key_is_derived_for_this_purpose_alone(tmp_path: Path) -> None:
    root = root_secret(tmp_path, os.urandom)
    token = TokenKey.derived(root).issue(expires_at=1, scope="read", uses=0, nonce="A" * 12)
    assert TokenKey(root).read(token.text) is None
    assert TokenKey.derived(root).read(token.text) == token


def test_the_root_secret_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    root = root_secret(tmp_path, os.urandom)
    file = tmp_path / FILE
    assert (len(root), stat.S_IMODE(file.stat().st_mode)) == (32, 0o600)
    assert root_secret(tmp_path, os.urandom) == root
    assert list(tmp_path.iterdir()) == [file]


def test_a_root_secret_others_can_read_or_that_is_damaged_stops_the_node(tmp_path: Path) -> None:
    root_secret(tmp_path, os.urandom)
    file = tmp_path / FILE
    file.chmod(0o640)
    with pytest.raises(Refusal, match="key_file_exposed"):
        root_secret(tmp_path, os.urandom)
    file.chmod(0o600)
    file.write_text("too short")
    with pytest.raises(Refusal, match="bad_key"):
        root_secret(tmp_path, os.urandom)


@pytest.mark.parametrize(
    ("scope", "opens", "not_these"),
    [
        ("read", (), ("NOW", "read", "")),
        ("act", ("NOW", "UPPER"), ()),
        ("row:NOW", ("NOW",), ("NOWX", "NO", "now", "")),
        ("rows:NOW,UPPER", ("NOW", "UPPER"), ("ECHO", "NOW,UPPER", "")),
        ("pfx:SHEET_", ("SHEET_A", "SHEET_"), ("SHEET", "sheet_a", "")),
        ("pool:lab:reviewer", (), ("lab", "reviewer", "NOW")),
    ],
)
def test_what_a_scope_opens(scope: str, opens: tuple[str, ...], not_these: tuple[str, ...]) -> None:
    assert is_scope(scope)
    assert all(allows(scope, key) for key in opens)
    assert not any(allows(scope, key) for key in not_these)


def test_what_a_narrower_scope_opens_the_wider_one_opens_too() -> None:
    keys = ("NOW", "UPPER", "SHEET_ADD", "SHEET_DEL", "OTHER")
    for law in NARROWING["scope_law"]:
        if law["narrows"] and is_scope(law["child"]) and law["child"] != "read":
            assert [key for key in keys if allows(law["child"], key) and not allows(law["parent"], key)] == []


@pytest.mark.parametrize(
    ("terms", "scope"),
    [
        ({"scope": "row", "key": "NOW"}, "row:NOW"),
        ({"scope": "rows", "keys": ("NOW", "UPPER")}, "rows:NOW,UPPER"),
        ({"scope": "rows", "key": "NOW"}, "rows:NOW"),
        ({"scope": "pfx", "prefix": "SHEET_"}, "pfx:SHEET_"),
        ({"scope": "pool", "workspace": "lab", "role": "observer"}, "pool:lab:observer"),
        ({"scope": "row:NOW"}, "row:NOW"),
        ({"scope": "act"}, "act"),
        ({"scope": "everything"}, "read"),
        ({"scope": ""}, "read"),
    ],
)
def test_terms_become_a_scope(terms: dict[str, Any], scope: str) -> None:
    assert scope_of(**terms) == scope


@pytest.mark.case("oip:W20")
@pytest.mark.parametrize(
    "terms",
    [
        {"scope": "row"},
        {"scope": "rows", "keys": ("A.0.AAECAwQFBgcI",)},
        {"scope": "row:A.B"},
        {"scope": "rows:" + ",".join(["K"] * 101)},
        {"scope": "pfx", "prefix": "Ä"},
        {"scope": "pool:Lab:x"},
        {"scope": "row:NOW\n"},
    ],
)
def test_terms_that_are_no_scope_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="bad_scope"):
        scope_of(**terms)


def test_audiences_match_as_in_the_vectors() -> None:
    wrong = [
        each
        for each in NARROWING["audience_match"]
        if audience_matches(each["audience"], each["sender"]) is not each["match"]
    ]
    assert wrong == []
    assert len(NARROWING["audience_match"]) > 40


def test_a_token_is_never_printed() -> None:
    token = Token("sh.secret", 1, "read", 0, "A" * 12)
    assert "sh.secret" not in f"{token!r} {KEY!r}"
