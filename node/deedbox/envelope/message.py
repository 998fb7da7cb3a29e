"""Reads and writes ``oip-message/1``: what an envelope must look like before anybody asks who signed it.

Implements OIP 1.2 §4 (members, shape check and its order) and the preimage of §5.1. An envelope keeps its members as
they were received, unknown ones too, because the signature covers them all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, NotRequired, Required, TypedDict, Unpack

import orjson

from deedbox.canonical import canonical, canonical_with, require_admissible, sha256_hex
from deedbox.clock import Ids, parse_instant, utc_z
from deedbox.identity.agent_id import parse_agent_id
from deedbox.refusals import Refusal

PROTOCOL: Final = "oip-message/1"
KINDS: Final = frozenset({"query", "propose", "invoke", "result", "event", "cancel", "error"})

MAX_REQUEST: Final = 131_072
"""Bytes of a request that are read at all; beyond it HTTP 413 ``envelope_too_large``."""
MAX_BODY: Final = 65_536
"""Canonical bytes of ``enc`` or ``body``."""
MAX_ID: Final = 200
MAX_CONVERSATION: Final = 200
MAX_CAPABILITY: Final = 2048

MIN_LIFE: Final = 30_000
MAX_LIFE: Final = 900_000
MAX_LIFE_BY_MAIL: Final = 7 * 86_400_000
LIFE_ALLOWANCE: Final = 5_000
CLOCK_SKEW: Final = 120_000

_MESSAGE_ID = re.compile(r"msg_[A-Za-z0-9_-]{8,}")


class Malformed(Refusal):
    """No envelope: HTTP 400 ``malformed_envelope``, unsigned, with the ``reason`` of OIP 1.2 §4.3."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__("malformed_envelope", 400, detail or reason, extra={"reason": reason})
        self.reason = reason


@dataclass(slots=True)
class Envelope:
    """An envelope whose shape is right and whose signature nobody has looked at yet; nobody changes it.

    ``sender`` and ``recipient`` are lower-cased agent ids, for every comparison and store; ``conversation`` is the
    sender's thread id, empty if there is none; times are milliseconds since the epoch. ``body_sha256`` is the hash the
    sender claims of ``body_bytes``, the canonical ``enc``, else ``body``; :func:`deedbox.envelope.seal.verify`
    recomputes it.
    """

    members: dict[str, Any] = field(repr=False)
    id: str
    kind: str
    sender: str
    recipient: str
    conversation: str
    created_at: int
    expires_at: int
    body_sha256: str
    body_bytes: bytes = field(repr=False)
    _unsigned: bytes = field(repr=False)

    @classmethod
    def parse(cls, value: Any, *, now: int, max_life: int = MAX_LIFE) -> Envelope:
        """Checks the shape of an admitted value, in the order of OIP 1.2 §4.3; raises :class:`Malformed`.

        ``max_life`` is the longest the carrier allows from ``created_at`` to ``expires_at``, in milliseconds. Expiry is
        not a matter of shape: :func:`deedbox.envelope.seal.verify` judges it.
        """
        sender, recipient = _addressed(value)
        for name in ("created_at", "expires_at"):
            if not _truthy(value.get(name)):
                raise Malformed("missing_times", f"{name} is missing")
        claimed = value.get("body_sha256")
        if not isinstance(claimed, str):
            raise Malformed("missing_body_hash")
        unsigned = value.copy()
        unsigned.pop("signature", None)
        try:
            name, printed = _hashed_part(value)
            whole = _whole(unsigned, name, printed)
        except Malformed:
            raise
        except Refusal as why:
            raise Malformed("non_canonical_json", why.detail) from None
        times = _times(value, now, max_life)
        conversation = _check_members(value)
        addressed = (value["id"], value["kind"], sender, recipient, conversation)
        return cls(value, *addressed, *times, claimed, printed, whole)

    @property
    def sender_domain(self) -> str:
        """Where the sender's key is published."""
        return self.sender.rpartition("@")[2]

    @property
    def spelled_from(self) -> str:
        """``from`` as it was written; a reply repeats it in ``to``."""
        return str(self.members["from"])

    @property
    def spelled_to(self) -> str:
        """``to`` as it was written."""
        return str(self.members["to"])

    @property
    def in_reply_to(self) -> str | None:
        """The id of the message this one answers, if it is a message id."""
        answered = self.members.get("in_reply_to")
        return answered if _is_message_id(answered) else None

    @property
    def body(self) -> dict[str, Any]:
        """The body, ``{}`` if there is none (a sealed one is not here yet)."""
        return self.members.get("body") or {}

    @property
    def enc(self) -> Any:
        """The sealed block as received, not yet known to be one, or ``None``; ``body_sha256`` then names the block."""
        block = self.members.get("enc")
        return block if _truthy(block) else None

    @property
    def capability(self) -> str | None:
        """The token in the open, if any."""
        return _text(self.members.get("capability"))

    @property
    def signature(self) -> dict[str, Any] | None:
        """The signature's members, if it is an object."""
        signature = self.members.get("signature")
        return signature if isinstance(signature, dict) else None

    @property
    def kid(self) -> str | None:
        """The key the signature names: the signer's agent id, or one of the sender's published key ids."""
        return _text((self.signature or {}).get("kid"))

    def preimage(self) -> bytes:
        """What is signed: the canonical envelope without its ``signature`` (OIP 1.2 §5.1)."""
        return self._unsigned

    def content_sha256(self) -> str:
        """The envelope's own hash, for receipts: independent of the signature, of which there may be several."""
        return sha256_hex(self._unsigned)


def _addressed(value: Any) -> tuple[str, str]:
    """Sender and recipient, rows 1 to 6 of OIP 1.2 §4.3."""
    if not isinstance(value, dict | list):
        raise Malformed("not_an_object")
    if isinstance(value, list) or value.get("protocol") != PROTOCOL:
        raise Malformed("wrong_protocol", f"this node speaks {PROTOCOL}")
    if not _is_message_id(value.get("id")):
        raise Malformed("bad_id")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise Malformed("bad_kind")
    sender = parse_agent_id(value.get("from"))
    if sender is None:
        raise Malformed("bad_from")
    recipient = parse_agent_id(value.get("to"))
    if recipient is None:
        raise Malformed("bad_to")
    return "@".join(sender), "@".join(recipient)


def _hashed_part(members: dict[str, Any]) -> tuple[str, bytes]:
    """The member ``body_sha256`` is about, and its canonical bytes; row 9."""
    name = "enc" if _truthy(members.get("enc")) else "body"
    part = members.get(name)
    printed = b"{}" if part is None else canonical(part)
    if len(printed) > MAX_BODY:
        raise Malformed("body_too_large", f"more than {MAX_BODY} canonical bytes")
    return name, printed


def _whole(unsigned: dict[str, Any], name: str, printed: bytes) -> bytes:
    """Canonical bytes of the unsigned envelope, its hashed part not printed again."""
    return canonical(unsigned) if unsigned.get(name) is None else canonical_with(unsigned, name, printed)


def _times(members: dict[str, Any], now: int, max_life: int) -> tuple[int, int]:
    created_at, expires_at = parse_instant(members["created_at"]), parse_instant(members["expires_at"])
    if created_at is None or expires_at is None:
        raise Malformed("bad_times", "a time is not an ISO 8601 instant with a zone")
    if expires_at - created_at > max_life + LIFE_ALLOWANCE:
        raise Malformed("ttl_too_long", f"lives longer than {max_life // 1000} s")
    if created_at > now + CLOCK_SKEW:
        raise Malformed("created_in_future", f"created more than {CLOCK_SKEW // 1000} s ahead of {utc_z(now)}")
    return created_at, expires_at


def _check_members(members: dict[str, Any]) -> str:
    """The conversation, if that and the rest of the members are no longer and of no other kind than they may be."""
    conversation = _text(members.get("conversation")) or ""
    if len(conversation) > MAX_CONVERSATION:
        raise Malformed("conversation_too_long", f"more than {MAX_CONVERSATION} characters")
    if len(_text(members.get("capability")) or "") > MAX_CAPABILITY:
        raise Malformed("capability_too_long", f"more than {MAX_CAPABILITY} characters")
    body = members.get("body")
    if body is not None and (not isinstance(body, dict) or _truthy(members.get("enc"))):
        raise Malformed("bad_body", "body is an object, or null, or null beside enc")
    return conversation


def _is_message_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_ID and _MESSAGE_ID.fullmatch(value) is not None


def _text(value: Any) -> str | None:
    """A non-empty string, or nothing: members of another type count as absent."""
    return value if isinstance(value, str) and value else None


def _truthy(value: Any) -> bool:
    """Truth as ECMAScript has it, where the specification says so: empty arrays and objects are true."""
    return value is not None and value != 0 and value != ""


# --- writing -----------------------------------------------------------------------------------------------------


class Draft(TypedDict, total=False):
    """What goes into an envelope.

    ``life`` in milliseconds, brought within 30 s and ``max_life``; ``extra`` further members, which the signature
    covers and readers may ignore; ``enc`` a sealed block, ``body`` then being ``None``.
    """

    ids: Required[Ids]
    kind: Required[str]
    sender: Required[str]
    recipient: Required[str]
    body: Required[dict[str, Any] | None]
    conversation: Required[str]
    now: Required[int]
    in_reply_to: str | None
    capability: str | None
    life: int
    max_life: int
    id: NotRequired[str | None]
    enc: dict[str, Any] | None
    extra: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Unsigned:
    """An envelope ready to be stored and, once its unit is committed, signed: its members and their canonical bytes."""

    members: dict[str, Any] = field(repr=False)
    wire: bytes = field(repr=False)


def compose(**draft: Unpack[Draft]) -> Unsigned:
    """Builds an envelope, its body printed once; raises :class:`Malformed` if a peer would refuse it."""
    now = draft["now"]
    life = max(MIN_LIFE, min(draft.get("life", 300_000), draft.get("max_life", MAX_LIFE)))
    members: dict[str, Any] = dict(draft.get("extra") or {})
    members |= {
        "protocol": PROTOCOL,
        "id": draft.get("id") or draft["ids"].new("msg", now),
        "conversation": draft["conversation"],
        "in_reply_to": draft.get("in_reply_to"),
        "kind": draft["kind"],
        "from": draft["sender"],
        "to": draft["recipient"],
        "created_at": utc_z(now),
        "expires_at": utc_z(now + life),
        "body": draft["body"],
        "capability": draft.get("capability"),
        "body_sha256": "",
    }
    if draft.get("enc"):
        members["enc"] = draft["enc"]
    _addressed(members)
    _check_members(members)
    try:
        require_admissible(members)
        name, printed = _hashed_part(members)
        members["body_sha256"] = sha256_hex(printed)
        return Unsigned(members, _whole(members, name, printed))
    except Malformed:
        raise
    except Refusal as why:
        raise Malformed("non_canonical_json", why.detail) from None


def build(**draft: Unpack[Draft]) -> dict[str, Any]:
    """The members of a new envelope without its signature, ``body_sha256`` included; raises as :func:`compose`."""
    return compose(**draft).members


def splice_signature(unsigned: bytes, kid: str, value: str) -> bytes:
    """The signed envelope's wire bytes: the signature is put last, where member order means nothing.

    ``unsigned`` is the canonical unsigned envelope, ``value`` the base64url of ``r‖s``.
    """
    member = b',"signature":{"alg":"ES256","kid":' + orjson.dumps(kid) + b',"value":' + orjson.dumps(value) + b"}}"
    return unsigned[:-1] + member


def redacted(members: dict[str, Any]) -> dict[str, Any]:
    """A copy fit for logs and answers: the capability's length stands for it (OIP 1.2 §12.1)."""
    token = _text(members.get("capability"))
    return members | {"capability": f"[capability of {len(token)} characters]"} if token else dict(members)
