"""Lets in only JSON that every parser reads alike, and prints it as the one byte string that is hashed and signed.

Implements RFC 8785 (JCS) over the I-JSON of RFC 7493, as OIP 1.2 §2 narrows it. Admission looks at the raw bytes once,
before anything typed sees them; printing is orjson wherever a guard proves that orjson and RFC 8785 agree.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

import orjson
import rfc8785

from deedbox.refusals import Refusal

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""Beyond this, neighbouring integers are one double, so one signature would cover two messages."""

NOT_CANONICAL: Final = frozenset({"duplicate_member", "number_out_of_range", "invalid_unicode", "too_deep"})
"""Codes of :func:`admit` for text that is JSON and is refused all the same: OIP 1.2 §2.4 ``non_canonical_json``."""

Guard = Callable[[Any], bool]

_SORTED = orjson.OPT_SORT_KEYS
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_TO_STANDARD = bytes.maketrans(b"-_+/=", b"+/...")  # and what only the other alphabet has to what none has


# --- admission ---------------------------------------------------------------------------------------------------


def admit(raw: bytes, *, limit: int | None = None, depth: int = 32) -> Any:
    """The value of a JSON text, if it may be hashed and signed.

    ``limit`` is the greatest size in bytes, ``depth`` the greatest nesting of arrays and objects. Raises
    :class:`Refusal` ``too_large`` (413), or 400 with ``invalid_unicode``, ``invalid_json``, ``duplicate_member``,
    ``too_deep`` or ``number_out_of_range``, in that order of precedence. Only ``dict``, ``list``, ``str``, ``int``,
    ``float``, ``bool`` and ``None`` come back.
    """
    if limit is not None and len(raw) > limit:
        raise Refusal("too_large", 413, f"more than {limit} bytes", extra={"limit": limit})
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        _explain(raw, depth)
    members, fault = _survey(value, depth)
    # Bytes that orjson itself would print hold no name twice: it prints from a dict, and a name dropped while reading
    # would leave its own text shorter. Only other spellings need their members counted.
    if _printed(value) != raw and _written_members(raw) != members:
        raise _no("duplicate_member")
    if fault:
        raise _no(fault)
    return value


def _printed(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # it reads deeper than it prints
        return b""


def require_admissible(value: Any, *, depth: int = 32) -> None:
    """Raises what :func:`admit` would of a value we are about to send: ``too_deep`` or ``number_out_of_range``."""
    _, fault = _survey(value, depth)
    if fault:
        raise _no(fault)


_SENTENCES = {
    "invalid_unicode": "the text holds bytes or escapes that are not Unicode characters",
    "invalid_json": "the text is not JSON",
    "duplicate_member": "an object names a member twice",
    "too_deep": "arrays and objects are nested too deeply",
    "number_out_of_range": "a number is not a finite double, or an integer beyond 2^53-1; send it as a string",
}


def _no(code: str) -> Refusal:
    return Refusal(code, 400, _SENTENCES[code])


def _survey(value: Any, depth: int) -> tuple[int, str]:
    """How many members all objects hold together, and the first fault (``""``: none), level by level."""
    members = 0
    wild = False
    level: list[Any] = [(value,)]
    levels = -1
    while level:
        levels += 1
        below: list[Any] = []
        for node in level:
            if type(node) is dict:
                members += len(node)
                node = node.values()
            for item in node:
                kind = type(item)
                if kind is str:
                    continue
                if kind is dict or kind is list:
                    below.append(item)
                elif (kind is int or kind is float) and not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                    wild = True
        level = below
    if levels > depth:
        return members, "too_deep"
    return members, "number_out_of_range" if wild else ""


def _written_members(raw: bytes) -> int:
    """How many members a valid JSON text writes down: its colons outside strings."""
    if b"\\" in raw:  # escaped backslashes go first, then every quote still escaped is inside a string
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(raw.split(b'"')[::2]).count(b":")


def _explain(raw: bytes, depth: int) -> NoReturn:
    """Raises the refusal for a text that the fast parser did not take."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _no("invalid_unicode") from None
    try:
        # Integers become doubles here only so that ten thousand digits are infinite, not an error of another kind.
        value = json.loads(text, object_pairs_hook=_unique, parse_int=float, parse_constant=_not_json)
    except RecursionError:
        raise _no("too_deep") from None
    except ValueError:
        raise _no("invalid_json") from None
    _, fault = _survey(value, depth)
    if not fault:
        fault = "invalid_unicode" if _SURROGATE_ESCAPE.search(text) else "invalid_json"
    raise _no(fault)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _no("duplicate_member")
    return members


def _not_json(constant: str) -> NoReturn:
    raise ValueError(constant)


# --- printing ----------------------------------------------------------------------------------------------------


def make_guard(*, least: float = 1e-4, bound: float = 1e15, fractions_only: bool = True) -> Guard:
    """A test whether orjson prints a value exactly as RFC 8785 does.

    Floats pass with ``least <= |x| < bound`` and, if ``fractions_only``, a fractional part. The defaults are the proven
    window; other values exist so that a test can show that its fuzz notices a wrong one.
    """

    def agrees(value: Any) -> bool:
        todo: list[Any] = [(value,)]
        for node in todo:  # grows while it is walked
            if type(node) is dict:
                if not "".join(node).isascii():  # beyond ASCII the two orders of names may differ
                    return False
                node = node.values()
            for item in node:
                kind = type(item)
                if kind is str or item is None or kind is bool:
                    continue
                if kind is dict or kind is list:
                    todo.append(item)
                elif kind is int:
                    if not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                        return False
                elif kind is not float or not least <= abs(item) < bound or (fractions_only and item.is_integer()):
                    return False
        return True

    return agrees


_agrees: Final = make_guard()


def canonical(value: Any) -> bytes:
    """The RFC 8785 bytes of a value; raises :class:`Refusal` ``non_canonical_json`` if it has none."""
    try:
        if _agrees(value):
            return orjson.dumps(value, option=_SORTED)
    except TypeError:
        pass  # a name that is no string, a lone surrogate, a depth orjson refuses: the reference says which
    return _reference(value)


def canonical_with(members: dict[str, Any], name: str, printed: bytes) -> bytes:
    """The RFC 8785 bytes of an object whose member ``name`` has been printed before.

    ``printed`` must be the canonical bytes of ``members[name]``; it is taken as it is and not walked again.
    """
    rest = members.copy()
    rest[name] = None
    try:
        if _agrees(rest):
            rest[name] = orjson.Fragment(printed)
            return orjson.dumps(rest, option=_SORTED)
    except TypeError:
        pass
    return _reference(members)


def _reference(value: Any) -> bytes:
    """RFC 8785 by the reference printer, whatever it raises made one refusal."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as why:
        raise Refusal("non_canonical_json", 400, f"no canonical form: {type(why).__name__}") from None


# --- digests and text --------------------------------------------------------------------------------------------


def sha256_digest(content: bytes) -> bytes:
    """The 32 bytes of SHA-256."""
    return hashlib.sha256(content).digest()


def sha256_hex(content: bytes | str) -> str:
    """Lower-case hex SHA-256 of bytes, or of a string's UTF-8."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def digest(value: Any) -> str:
    """Lower-case hex SHA-256 of a value's canonical bytes."""
    return sha256_hex(canonical(value))


def b64url(content: bytes) -> str:
    """RFC 4648 §5, without padding (OIP 1.2 §1.1)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unb64url(text: str) -> bytes:
    """The bytes of :func:`b64url` text and of nothing else: no padding, no space, no other alphabet, no loose bits.

    Raises :class:`Refusal` ``bad_base64url``.
    """
    if not isinstance(text, str):
        raise _not_base64url()
    try:
        padded = text.encode("ascii").translate(_TO_STANDARD) + b"=" * (-len(text) % 4)
        content = binascii.a2b_base64(padded)
    except (UnicodeEncodeError, binascii.Error):
        raise _not_base64url() from None
    if binascii.b2a_base64(content, newline=False) != padded:
        raise _not_base64url()
    return content


def _not_base64url() -> Refusal:
    return Refusal("bad_base64url", 400, "not unpadded base64url")
