"""What is let in, and that what is printed is RFC 8785 to the byte."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import orjson
import pytest

from deedbox.canonical import (
    NOT_CANONICAL,
    admit,
    b64url,
    canonical,
    canonical_with,
    digest,
    sha256_digest,
    sha256_hex,
    unb64url,
)
from deedbox.refusals import Refusal

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
OIP_CASES = json.loads((VECTORS / "oip/canonical.json").read_text("utf-8"))["cases"]

REFUSED_ON_RECEIPT = {
    "number integers": "number_out_of_range",
    "number exponents": "number_out_of_range",
    "number overflow becomes null": "number_out_of_range",
    "lone surrogate": "invalid_unicode",
    "duplicate member, last wins": "duplicate_member",
}


def code_of(raw: bytes, **limits: int) -> str:
    with pytest.raises(Refusal) as refused:
        admit(raw, **limits)
    return refused.value.code


# --- RFC 8785 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["arrays", "french", "structures", "unicode", "values", "weird"])
def test_the_six_published_pairs(name: str) -> None:
    value = json.loads((VECTORS / f"jcs/input/{name}.json").read_bytes())
    expected = bytes.fromhex((VECTORS / f"jcs/outhex/{name}.txt").read_text())
    assert canonical(value) == expected
    assert canonical(json.loads(expected)) == expected


def test_ten_thousand_numbers_print_as_ecmascript_prints_them() -> None:
    lines = (VECTORS / "jcs/es6-numbers-10000.txt").read_text().splitlines()
    assert len(lines) == 10_000
    for line in lines:
        bits, _, expected = line.partition(",")
        (number,) = struct.unpack(">d", int(bits, 16).to_bytes(8, "big"))
        assert canonical(number) == expected.encode(), line


@pytest.mark.parametrize("case", OIP_CASES, ids=[case["name"] for case in OIP_CASES])
def test_the_cases_of_the_specification(case: dict[str, str]) -> None:
    raw = case["json_text"].encode("utf-8", "surrogatepass")
    if case["name"] in REFUSED_ON_RECEIPT:
        assert code_of(raw) == REFUSED_ON_RECEIPT[case["name"]]
        return
    value = admit(raw)
    assert canonical(value) == case["canonical"].encode()
    assert digest(value) == case["sha256"]


@pytest.mark.case("fed:A1")
def test_a_float_is_never_printed_as_an_ordinary_encoder_would() -> None:
    value = json.loads('{"a":10.0,"b":-0.0,"c":1e-7,"d":1e20,"e":0.00001}')
    expected = b'{"a":10,"b":0,"c":1e-7,"d":100000000000000000000,"e":0.00001}'
    assert canonical(value) == expected
    assert orjson.dumps(value) != expected
    assert json.dumps(value, separators=(",", ":")).encode() != expected


@pytest.mark.case("fed:A2")
def test_names_sort_by_utf16_units() -> None:
    value = admit(b'{"\\ufb33":1,"\\ud83d\\ude00":2}')
    assert canonical(value) == '{"\U0001f600":2,"\ufb33":1}'.encode()
    by_code_point = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert by_code_point == orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == '{"\ufb33":1,"\U0001f600":2}'.encode()


@pytest.mark.case("fed:A6")
def test_names_differing_in_case_are_two_names() -> None:
    assert canonical(admit(b'{"run":["x"],"Run":["y"]}')) == b'{"Run":["y"],"run":["x"]}'


@pytest.mark.case("fed:A10")
def test_spacing_and_escapes_on_the_wire_mean_nothing() -> None:
    spaced = b'{ "b" : [ 1 , 2.50 ],\r\n\t"\\u0061" : "\\u00e9\\/" }'
    assert canonical(admit(spaced)) == '{"a":"é/","b":[1,2.5]}'.encode()


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        {"\ud800": 1},
        {"é": "\udfff"},
        float("nan"),
        [float("inf")],
        2**53,
        {1: 2},
        {"a": b"bytes"},
        {"a": {1, 2}},
    ],
)
def test_what_has_no_canonical_form_is_one_refusal(value: Any) -> None:
    with pytest.raises(Refusal) as refused:
        canonical(value)
    assert (refused.value.code, refused.value.status) == ("non_canonical_json", 400)


def test_endless_nesting_is_a_refusal_and_no_crash() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(Refusal, match="non_canonical_json"):
        canonical(value)


def test_a_member_printed_before_is_not_printed_again() -> None:
    bodies: list[Any] = [{"z": 1, "a": [2.5]}, {"é": 1e20, "\ufb33": 1, "\U0001f600": 2}, []]
    for body in bodies:
        members = {"to": "b", "body": body, "a": 1}
        assert canonical_with(members, "body", canonical(body)) == canonical(members)
        awkward: dict[str, Any] = members | {"\U0001f600": -0.0, "\ufb33": 1e20}
        assert canonical_with(awkward, "body", canonical(body)) == canonical(awkward)


# --- admission ---------------------------------------------------------------------------------------------------


@pytest.mark.case("fed:A3", "fed:A4", "oip:W50")
@pytest.mark.parametrize(
    "number",
    [
        "9007199254740992",
        "9007199254740993",
        "-9007199254740992",
        "9007199254740992.0",
        "1e20",
        "18446744073709551616",
        "-9223372036854775809",
        "1e400",
        "-1e400",
        "9" * 5000,
    ],
)
def test_numbers_that_parsers_read_differently(number: str) -> None:
    assert code_of(f'{{"n":{number}}}'.encode()) == "number_out_of_range"
    assert code_of(f'{{ "n" : [{number}] }}'.encode()) == "number_out_of_range"
    assert code_of(number.encode()) == "number_out_of_range"


@pytest.mark.case("fed:A3")
def test_the_last_safe_integers_are_let_in() -> None:
    assert admit(b"[9007199254740991,-9007199254740991,9007199254740991.0]") == [2**53 - 1, 1 - 2**53, 2.0**53 - 1]


@pytest.mark.case("fed:A5", "oip:W50")
@pytest.mark.parametrize(
    "raw",
    [
        b'{"amount":1,"amount":2}',
        b'{"amount":1,"\\u0061mount":2}',
        b'{ "amount" : 1 , "amount" : 2 }',
        b'[{"a":{"b":":","b":":"}}]',
        b'{"a":"\\\\","a":"\\\\"}',
        b'{"a":"\\":","a":"\\":"}',
        b'{"a\\\\":1,"a\\u005c":1}',
        b'{"a":1e400,"a":1}',
        b'{"\\ud800":1,"\\ud800":2}',
    ],
)
def test_a_name_given_twice(raw: bytes) -> None:
    assert code_of(raw) == "duplicate_member"


@pytest.mark.parametrize(
    "raw",
    [
        b'{ "a": ":", "b": "\\":", "c\\\\": "\\\\\\":" }',
        b'{"\\\\":{"\\":":1},"\\u003a":":::"}',
        b'{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]} ',
    ],
)
def test_colons_inside_strings_are_no_members(raw: bytes) -> None:
    assert admit(raw) == json.loads(raw)


@pytest.mark.case("fed:A7", "oip:W50")
@pytest.mark.parametrize(
    "raw",
    [b'["\\ud800"]', b'{"\\ud800":1}', b'["\xed\xa0\x80"]', b'{"\xed\xa0\x80":1}', b'["\\udc00\\ud800"]', b'["\xff"]'],
)
def test_half_a_character(raw: bytes) -> None:
    assert code_of(raw) == "invalid_unicode"


@pytest.mark.case("fed:A8", "oip:W50")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'{"n":NaN}', "invalid_json"),
        (b"Infinity", "invalid_json"),
        (b"[-Infinity]", "invalid_json"),
        (b"1e400", "number_out_of_range"),
        (b"\xef\xbb\xbf{}", "invalid_json"),
        ('{"a":1}'.encode("utf-16"), "invalid_unicode"),
        ('{"a":1}'.encode("utf-16-le"), "invalid_json"),
        (b"", "invalid_json"),
        (b"{}{}", "invalid_json"),
        (b"{'a':1}", "invalid_json"),
        (b'["a\nb"]', "invalid_json"),
        (b"[1,]", "invalid_json"),
    ],
)
def test_what_is_not_json(raw: bytes, code: str) -> None:
    assert code_of(raw) == code


@pytest.mark.case("fed:A8")
@pytest.mark.parametrize("zero", [b"-0", b"-0.0", b"0.0", b"1e-400"])
def test_every_zero_prints_as_zero(zero: bytes) -> None:
    assert canonical(admit(zero)) == b"0"


@pytest.mark.case("fed:A9")
def test_depth_is_counted_and_never_a_crash() -> None:
    assert admit(b"[" * 32 + b"]" * 32) is not None
    assert code_of(b"[" * 33 + b"]" * 33) == "too_deep"
    assert code_of(b'{"a":' * 33 + b"1" + b"}" * 33) == "too_deep"
    assert code_of(b"[" * 2000 + b"]" * 2000) == "too_deep"
    assert code_of(b"[" * 5000) == "too_deep"
    assert code_of(b"[[1]]", depth=1) == "too_deep"
    assert admit(b"[1]", depth=1) == [1]
    assert admit(b"1", depth=0) == 1


def test_size_is_judged_first() -> None:
    with pytest.raises(Refusal) as refused:
        admit(b"\xff" * 11, limit=10)
    assert (refused.value.code, refused.value.status) == ("too_large", 413)
    assert admit(b'"12345678"', limit=10) == "12345678"


def test_the_order_of_refusals() -> None:
    deep = "[" * 33 + "]" * 33
    assert code_of(f'{{"a":{deep},"a":1e20}}'.encode()) == "duplicate_member"
    assert code_of(f'{{"a":{deep},"b":1e20}}'.encode()) == "too_deep"
    assert code_of(b'{"a":1e400,"b":"\\ud800"}') == "number_out_of_range"


def test_the_codes_the_wire_calls_non_canonical() -> None:
    texts = (b'{"a":1,"a":1}', b"1e20", b'"\\ud800"', b"[" * 33 + b"]" * 33)
    assert {code_of(raw) for raw in texts} == NOT_CANONICAL


# --- digests and base64url ---------------------------------------------------------------------------------------


def test_digests() -> None:
    assert sha256_hex("é") == sha256_hex("é".encode()) == hashlib.sha256(b"\xc3\xa9").hexdigest()
    assert sha256_digest(b"") == hashlib.sha256().digest()
    assert digest({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()


def test_base64url_round_trips() -> None:
    for size in range(70):
        content = bytes(range(190, 190 + size % 60)) + b"\xff" * (size // 60)
        assert unb64url(b64url(content)) == content


@pytest.mark.parametrize(
    "text", ["QQ==", "Q", "QR", "QUI=", "QUJ", "+_8", "-/8", "Q Q", "QQ\n", " QQ", "QQ.", "QQ=", "=", "é", "QUJD.", "A"]
)
def test_loose_base64url_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="bad_base64url"):
        unb64url(text)
