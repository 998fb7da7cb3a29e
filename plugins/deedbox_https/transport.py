"""One POST of a signed envelope to an inbox, and what its answer means for the next attempt (OIP 1.2 §8.2, §12.1).

No redirect is followed, 30 seconds bound the exchange, and nothing is sent twice from here: repeating is the outbox'
business. An ``invoke`` that may have arrived is asked for in the peer's ledger before it is sent again (decision 30).
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from deedbox import Node, Refusal
from deedbox.canonical import admit
from deedbox.clock import Clock
from deedbox.delivery import Handover, NotDelivered, Parcel
from deedbox.domains import HttpsAddress, https_address
from deedbox.outgoing import Answer, OutgoingRefusal

SECONDS: Final = 30.0
LEDGER: Final = "/oip/ledger?msg="
PASSING: Final = frozenset({408, 425, 429})
"""Refusals by the transport that say nothing about the message."""
LONGEST_WAIT: Final = 86_400
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_HEADERS: Final = {"Accept": "application/json"}


class HttpsTransport:
    """Carries parcels to ``https:`` inboxes."""

    schemes = ("https",)

    def __init__(self, *, development: bool) -> None:
        self._development = development

    async def deliver(self, node: Node, item: Parcel) -> Handover:
        """Try once; raises ``NotDelivered``."""
        try:
            place = https_address(item.inbox, development=self._development)
        except Refusal as no:
            raise NotDelivered(no.code, "the recipient's inbox has no address we go to") from None
        known = await _known_there(node, place, item) if item.uncertain and item.kind == "invoke" else None
        answer = await _posted(node, place, item)
        if 200 <= answer.status < 300:
            return Handover(answer.status, answer.body, known)
        raise _refused(answer, node.kernel.clock)


async def _posted(node: Node, place: HttpsAddress, item: Parcel) -> Answer:
    try:
        return await node.kernel.outgoing.post(
            place.host, place.port, place.path, item.wire, headers=_HEADERS, timeout=SECONDS
        )
    except OutgoingRefusal as no:
        raise NotDelivered(no.code, no.detail, sent=no.sent, retry_after=no.retry_after) from None
    except Refusal as no:
        raise NotDelivered(no.code, "the recipient's inbox has no address we go to") from None


async def _known_there(node: Node, place: HttpsAddress, item: Parcel) -> Mapping[str, Any] | None:
    """What the peer's ledger has of the message; nothing if it has not seen it, or keeps no such ledger.

    While it cannot be asked the message is not sent again: that is ``NotDelivered``.
    """
    try:
        found = await node.kernel.outgoing.get_json(place.host, LEDGER + quote(item.message_id, safe=""))
    except OutgoingRefusal as no:
        status = no.extra.get("status")
        if isinstance(status, int) and 400 <= status < 500 and status not in PASSING:
            return None
        raise NotDelivered("peer_ledger_unreachable", no.detail, sent=False, retry_after=no.retry_after) from None
    try:
        said = admit(found.body)
    except Refusal:
        return None
    return _record(said, item)


def _record(said: Any, item: Parcel) -> Mapping[str, Any] | None:
    """The record that is about this message, in either shape peers use (OIP 1.2 §10.3)."""
    if not isinstance(said, dict):
        return None
    records = said.get("records")
    listed = records if isinstance(records, list) else []
    for record in (*listed, said.get("record")):
        if not isinstance(record, dict) or record.get("body_sha256") != item.body_sha256:
            continue
        if item.message_id in (record.get("msg_id"), record.get("id")):
            return record
    return None


def _refused(answer: Answer, clock: Clock) -> NotDelivered:
    status = answer.status
    passing = status in PASSING or status >= 500
    wait = retry_after(answer.headers.get("retry-after", ""), clock.now())
    return NotDelivered(
        _code(answer),
        f"the peer answered HTTP {status}",
        final=not passing,
        sent=True,
        answered=status,
        retry_after=wait,
    )


def _code(answer: Answer) -> str:
    """The peer's own word for its refusal if it is one, else its status."""
    try:
        said = admit(answer.body, limit=4096)
    except Refusal:
        said = None
    words = [said.get("error"), said.get("reason")] if isinstance(said, dict) else []
    found = [word for word in words if isinstance(word, str) and _CODE.fullmatch(word)]
    return ":".join(found) or f"http_{answer.status}"


def retry_after(text: str, now: int) -> int | None:
    """Seconds from a ``Retry-After`` field, either form (RFC 9110 §10.2.3); a day at most, nothing if unreadable."""
    if re.fullmatch("[0-9]{1,9}", text):
        return min(int(text), LONGEST_WAIT)
    try:
        at = email.utils.parsedate_to_datetime(text)
        seconds = int(at.timestamp()) - now // 1000
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0, min(seconds, LONGEST_WAIT))
