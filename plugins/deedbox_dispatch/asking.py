"""What a request at the door asks for, read before anybody is believed: one action, its arguments, who claims what.

Implements OIP 1.2 §14.6 (presenting a token), §16.2 (GET), §16.3 (POST). Members outside these lists have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import orjson

from deedbox import Refusal
from deedbox.canonical import admit, canonical
from deedbox.logs import redacted_text

ACTIONS = ("confirm", "explain", "invoke", "key", "mint_share", "registry", "revoke")
"""What this door does; a name of the wire that is not among them is refused, so that none is ignored by mistake."""
ELSEWHERE = frozenset(
    {
        *("work", "schema", "ask", "how", "profile", "priorities", "map", "why", "objections", "faq", "conformance"),
        *("email_drop", "fedtest", "tenancy", "tenant", "tenants", "tenant_create", "tenant_mint", "tenant_suspend"),
        *("tenant_resume", "tenant_invocations", "orient", "ping", "receipt", "attenuate", "narrow", "self_scope"),
        *("help", "challenge", "replay", "repairs"),
    }
)
OBJECT_OF = {
    "confirm": "CONFIRM",
    "explain": "CAPABILITY_EXPLAIN",
    "key": "DESCRIBE",
    "mint_share": "CAPABILITY_MINT",
    "registry": "REGISTRY",
    "revoke": "CAPABILITY_REVOKE",
}
IN_URL = ("tk", "terminal_key")
TOKEN_HEADERS = ("x-write-token", "x-block-token")
SPOKEN_FOR, EACH_NAME, REQUEST_TEXT = 8, 120, 300
FIELDS = 64


@dataclass(frozen=True, slots=True)
class Claims:
    """What a caller says of itself; recorded as said, believed by nobody (OIP 1.2 §17.1)."""

    on_behalf_of: tuple[str, ...] = ()
    authorized_by: str | None = None

    def said(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if self.on_behalf_of:
            told["on_behalf_of"] = list(self.on_behalf_of)
        if self.authorized_by:
            told["authorized_by_user"] = self.authorized_by
        return told


@dataclass(frozen=True, slots=True)
class Asking:
    """One thing asked. ``arguments`` of a run are the text its object is given; ``token`` is never printed."""

    action: str
    object_key: str
    arguments: Any
    token: str | None = field(default=None, repr=False)
    claims: Claims = Claims()
    dry: bool = False

    @property
    def explains_token(self) -> bool:
        """The token is what is asked about, and so proves nobody."""
        return self.action == "explain" and not self.arguments


def parameters(query: bytes, limit: int) -> dict[str, str]:
    """The query's parameters; one given twice, and the owner's key, are refused."""
    if len(query) > limit:
        raise Refusal("too_large", 413, f"more than {limit} bytes", extra={"limit": limit})
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError:
        raise Refusal("bad_query", 400, "the query is not percent-encoded UTF-8") from None
    found = dict(pairs)
    if any(name in found for name in IN_URL):
        detail = "the owner's key in a URL ends up in logs; it is refused and should be replaced"
        raise Refusal("owner_key_in_url", 401, detail, next_step="send it as the header x-terminal-key")
    if len(found) != len(pairs):
        raise Refusal("ambiguous_request", 400, "a parameter is given twice", extra={"ran": False})
    return found


def from_query(given: Mapping[str, str], headers: Mapping[str, str]) -> Asking:
    """What a GET asks for (OIP 1.2 §16.2)."""
    action = _action(given)
    token = presented(given.get("share"), headers)
    if action == "invoke":
        key = given["invoke"]
        if not key:
            raise Refusal("invoke key required", 400, "name the object to invoke")
        claims = _claims(given.get("on_behalf_of"), given.get("authorized_by"))
        return Asking(action, key, given.get("body", ""), token, claims)
    return Asking(action, OBJECT_OF[action], _arguments(action, given), token)


def _action(given: Mapping[str, str]) -> str:
    named = [action for action in ACTIONS if action in given]
    if named == ["key", "mint_share"]:
        named = ["mint_share"]
    if not named or ELSEWHERE & given.keys():
        raise unrecognized(list(given))
    if len(named) > 1:
        detail = f"choose one of {', '.join(named)}"
        raise Refusal("ambiguous_request", 400, detail, extra={"ran": False, "received_params": list(given)})
    return named[0]


def unrecognized(received: list[str]) -> Refusal:
    """The answer to what this door does not do (OIP 1.2 §16.2)."""
    extra = {
        "ran": False,
        "received_params": received[:FIELDS],
        "recognized_actions": list(ACTIONS),
        "hint": "no known action; nothing ran",
    }
    return Refusal("unrecognized_request", 400, extra=extra)


def _arguments(action: str, given: Mapping[str, str]) -> dict[str, Any]:
    value = given[action]
    if action == "mint_share":
        return {name: text for name, text in given.items() if name not in ("mint_share", "share") and text}
    if action == "explain":
        return {} if value in ("", "1", "true") else {"fingerprint": value}
    if action == "confirm":
        if not value:
            raise Refusal("confirm id required", 400, "name the invocation")
        return {"invocation": value}
    if action == "registry":
        return {"category": given["category"]} if given.get("category") else {}
    if not value:
        raise Refusal("key required" if action == "key" else "bad fingerprint", 400)
    return {"key": value} if action == "key" else {"fingerprint": value}


def from_body(raw: bytes, given: Mapping[str, str], headers: Mapping[str, str]) -> Asking:
    """What a POST asks for (OIP 1.2 §16.3); only the members named here are looked at (§29 W24)."""
    told = _object(raw)
    elsewhere = [name for name in told if name in ELSEWHERE]
    if elsewhere:
        raise unrecognized(elsewhere)
    named = [name for name in ("key", "mint", "revoke") if name in told]
    if len(named) > 1:
        raise Refusal("ambiguous_request", 400, f"choose one of {', '.join(named)}", extra={"ran": False})
    token = presented(given.get("share"), headers, told.get("share"), told.get("capability_token"))
    if "mint" in told:
        terms = told["mint"]
        if not isinstance(terms, dict):
            raise Refusal("bad_arguments", 400, "mint is an object of terms")
        return Asking("mint_share", OBJECT_OF["mint_share"], terms, token)
    if "revoke" in told:
        return Asking("revoke", OBJECT_OF["revoke"], {"fingerprint": str(told["revoke"])}, token)
    key = told.get("key")
    if not isinstance(key, str) or not key:
        raise Refusal("key required", 400, "name the object to run")
    claims = _claims(told.get("on_behalf_of"), told.get("authorized_by"))
    return Asking("invoke", key, text_of(told.get("body")), token, claims, dry=told.get("shape") is True)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        told = admit(raw)
    except Refusal as refusal:
        if refusal.code in ("invalid_json", "invalid_unicode"):
            raise Refusal("invalid json", 400, refusal.detail) from None
        raise
    if not isinstance(told, dict):
        raise Refusal("invalid json", 400, "a JSON object is expected")
    return told


def text_of(body: Any) -> str:
    """The argument text: a string as it is, nothing as nothing, anything else as JSON text (OIP 1.2 §16.3, W51)."""
    if body is None:
        return ""
    return body if isinstance(body, str) else canonical(body).decode()


def presented(share: str | None, headers: Mapping[str, str], *members: Any) -> str | None:
    """The token, from the first place that holds one (OIP 1.2 §14.6)."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    places = [share, bearer.strip() if scheme.lower() == "bearer" else None]
    places += [headers.get(name) for name in TOKEN_HEADERS]
    places += [member for member in members if isinstance(member, str)]
    return next((place for place in places if place), None)


def _claims(on_behalf_of: Any, authorized_by: Any) -> Claims:
    names = _names(on_behalf_of)
    chain = tuple(redacted_text(name)[:EACH_NAME] for name in names if isinstance(name, str) and name)
    said = redacted_text(authorized_by)[:REQUEST_TEXT] if isinstance(authorized_by, str) else ""
    return Claims(chain[:SPOKEN_FOR], said or None)


def _names(given: Any) -> list[Any]:
    """A list, a list as JSON text, or names with ``>`` between them."""
    if isinstance(given, list):
        return given
    if not isinstance(given, str):
        return []
    if given.startswith("["):
        try:
            listed = orjson.loads(given)
        except orjson.JSONDecodeError:
            return []
        return listed if isinstance(listed, list) else []
    return [name.strip() for name in given.split(">")]
