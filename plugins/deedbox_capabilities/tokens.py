"""The token a holder shows: an opaque string only this node can make or check; what it means is in its record.

Implements OIP 1.2 §14.1, §14.2: HMAC-SHA256 (RFC 2104) under a key derived for this purpose (RFC 5869).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from deedbox import Refusal
from deedbox.canonical import b64url
from deedbox_capabilities.scopes import GRAMMAR, is_scope

PURPOSE = b"oip-cap-v1"
NONCE_BYTES = 9
LONGEST = 8_192
"""Characters; a scope of a hundred of the longest keys fits."""

_TOKEN = re.compile(
    rf"(?P<payload>sh\.(?P<exp>\d{{1,12}})\.(?P<scope>{GRAMMAR})(?:\.(?P<uses>\d{{1,6}}))?\.(?P<nonce>[A-Za-z0-9_-]{{12,32}}))"
    r"\.(?P<mac>[A-Za-z0-9_-]{43})",
    re.ASCII,
)
_FINGERPRINT = re.compile(r"cap_[0-9a-f]{16}")


@dataclass(slots=True)
class Token:
    """A token that verified. ``expires_at`` in Unix seconds; ``uses`` 0 is unlimited; the text is never printed."""

    text: str = field(repr=False)
    expires_at: int
    scope: str
    uses: int
    nonce: str
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        self.fingerprint = fingerprint(self.text)

    def expired(self, now: int) -> bool:
        """Whether its last second is over at ``now`` (milliseconds)."""
        return self.expires_at < now // 1000


def fingerprint(token: str) -> str:
    """What a token is called wherever it must not be written; its holder can recompute it."""
    return f"cap_{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def is_fingerprint(text: str) -> bool:
    return _FINGERPRINT.fullmatch(text) is not None


class TokenKey:
    """Makes and checks tokens. Prints nothing of itself."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def derived(cls, root: bytes) -> TokenKey:
        """The key for this one purpose, so that no other MAC of the node is ever a capability."""
        return cls(HKDF(algorithm=SHA256(), length=32, salt=None, info=PURPOSE).derive(root))

    def issue(self, *, expires_at: int, scope: str, uses: int, nonce: str) -> Token:
        """A new token; raises :class:`Refusal` ``bad_scope`` rather than sign a scope outside the grammar."""
        if not is_scope(scope):
            raise Refusal("bad_scope", 400, "this is no scope")
        payload = f"sh.{expires_at}.{scope}.{uses}.{nonce}"
        return Token(f"{payload}.{self._mac(payload)}", expires_at, scope, uses, nonce)

    def read(self, text: str) -> Token | None:
        """The token, or nothing if its shape or its MAC is wrong; whether it has expired is the caller's question."""
        found = _TOKEN.fullmatch(text) if len(text) <= LONGEST else None
        if found is None or not hmac.compare_digest(self._mac(found["payload"]), found["mac"]):
            return None
        return Token(text, int(found["exp"]), found["scope"], int(found["uses"] or 0), found["nonce"])

    def _mac(self, payload: str) -> str:
        return b64url(hmac.digest(self._key, payload.encode(), "sha256"))
