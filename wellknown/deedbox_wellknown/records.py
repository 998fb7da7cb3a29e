"""Reads what a domain publishes of its agents, believing only what it may say (OIP 1.2 §7.1, §7.2, §7.3, §7.5, §3.2).

The words for what went wrong are those of §7.3, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deedbox import AgentRecord, Refusal
from deedbox.canonical import admit
from deedbox.clock import parse_instant
from deedbox.domains import belongs_to, https_address
from deedbox.envelope.message import PROTOCOL
from deedbox.identity.keys import P256Public
from deedbox.outgoing import DISCOVERY_LIMIT
from deedbox.refusals import Fault

KEYS_READ = 16
"""Further keys of one agent that are looked at; what is listed after them is not."""
PASSING = frozenset({408, 425, 429})
"""Statuses below 500 that may pass by themselves (RFC 9110 §15, RFC 6585 §4, RFC 8470 §5.2)."""

Window = tuple[P256Public, int | None, int | None]


class Unresolved(Exception):
    """Why an agent's record could not be had: ``reason`` for the wire, ``detail`` for a person.

    ``temporary`` says the same question may have another answer soon; ``domain`` that it holds for all its agents.
    """

    def __init__(self, reason: str, detail: str = "", *, temporary: bool = False, domain: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail or reason
        self.temporary = temporary
        self.domain = domain

    def again(self) -> Unresolved:
        """The same failure for somebody else: an exception that is raised twice keeps growing."""
        return Unresolved(self.reason, self.detail, temporary=self.temporary, domain=self.domain)

    def refusal(self, wait: int) -> Refusal:
        """The refusal of the port; ``wait`` is the seconds after which asking again helps, if it can.

        The wait is also a member of the answer, for on the inbox that has no header of its own (fed:B13).
        """
        hint: dict[str, object] = {"retry_after": wait} if self.temporary else {}
        return Refusal(
            "sender_unverifiable",
            401,
            self.detail,
            fault=Fault.NETWORK if self.temporary else Fault.THEIRS,
            retry_after=wait if self.temporary else None,
            extra={"resolve_failure": self.reason, **hint},
        )


def unreachable(why: str, *, temporary: bool = False) -> Unresolved:
    return Unresolved(f"well_known_unreachable:{why[:80]}", why, temporary=temporary, domain=True)


def failed_fetch(refusal: Refusal) -> Unresolved:
    """How a fetch that came to nothing is named."""
    if refusal.code == "response_too_large":
        return Unresolved("well_known_too_large", refusal.detail, domain=True)
    if refusal.code == "http_status":
        status = int(str(refusal.extra["status"]))
        passing = status >= 500 or status in PASSING
        return Unresolved(f"well_known_http_{status}", refusal.detail, temporary=passing, domain=True)
    return unreachable(refusal.detail, temporary=refusal.code in ("timed_out", "unreachable", "too_many_fetches"))


def read_document(text: bytes | str, domain: str) -> dict[str, dict[str, Any]]:
    """The entries of a document by agent id in lower case, if it speaks our protocol and for the domain asked.

    The first entry of an id counts; what is no entry is passed over. Raises :class:`Unresolved`.
    """
    raw = text.encode() if isinstance(text, str) else text
    try:
        document = admit(raw, limit=DISCOVERY_LIMIT)
    except Refusal as refusal:
        raise unreachable(refusal.detail) from None
    if not isinstance(document, dict) or document.get("protocol") != PROTOCOL:
        raise unreachable(f"the document's protocol is not {PROTOCOL}")
    named = document.get("domain", domain)
    if not isinstance(named, str) or named.lower() != domain:
        raise unreachable("the document speaks for another domain")
    entries: dict[str, dict[str, Any]] = {}
    listed = document.get("agents")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            entries.setdefault(entry["id"].lower(), entry)
    return entries


def read_record(entry: dict[str, Any], agent: str, domain: str, now: int, *, development: bool) -> AgentRecord:
    """An agent's record, whole and usable, or :class:`Unresolved` ``agent_record_incomplete`` saying what is not."""
    jwk, inbox = entry.get("public_key_jwk"), entry.get("inbox")
    if jwk is None or not isinstance(inbox, str):
        raise _incomplete("the record lacks its key or its inbox")
    try:
        key = P256Public.from_jwk(jwk)
        keys = dict(_further_keys(entry))
    except Refusal as refusal:
        raise _incomplete(refusal.detail) from refusal
    _check_inbox(inbox, domain, development=development)
    own = keys.get(key.thumbprint)
    if own is not None and own[2] is not None and own[2] <= now:
        raise _incomplete("the published key is past its window")
    return AgentRecord(agent, key, inbox, keys)


def _incomplete(why: str) -> Unresolved:
    return Unresolved("agent_record_incomplete", why)


def _further_keys(entry: dict[str, Any]) -> Iterator[tuple[str, Window]]:
    """Further keys by ``kid``; one that is no key is passed over, one with its private part spoils the record."""
    for member in ("previous_keys", "keys"):
        listed = entry.get(member)
        for each in listed[:KEYS_READ] if isinstance(listed, list) else ():
            if not isinstance(each, dict):
                continue
            try:
                key = P256Public.from_jwk(each.get("public_key_jwk"))
            except Refusal as refusal:
                if refusal.code == "private_key_published":
                    raise
                continue
            begins, ends = each.get("not_before"), each.get("not_after")
            window = parse_instant(begins), parse_instant(ends)
            if (begins is None) == (window[0] is None) and (ends is None) == (window[1] is None):
                kid = each.get("kid")
                yield (kid if isinstance(kid, str) and len(kid) <= 256 else key.thumbprint), (key, *window)


def _check_inbox(inbox: str, domain: str, *, development: bool) -> None:
    """Https, the usual port, on the domain or below it: nobody is sent elsewhere by a document (OIP 1.2 §29 W16)."""
    try:
        address = https_address(inbox, development=development)
    except Refusal as refusal:
        raise _incomplete(f"the inbox: {refusal.detail}") from None
    if not belongs_to(address.host, domain):
        raise _incomplete(f"the inbox is not on {domain}")
    if address.port != 443:
        raise _incomplete(f"the inbox is on port {address.port}")
