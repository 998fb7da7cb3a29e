"""What another node answered, and which answers are taken: plain JSON, not compressed, freshness by RFC 9111 §4.2."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deedbox.outgoing.refusal import OutgoingRefusal

REDIRECTS = frozenset({301, 302, 303, 307, 308})

_JSON = re.compile(r"application/(?:[a-z0-9!#$&^_.+-]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
_ETAG = re.compile(r'(?:W/)?"[!#-~]{0,200}"')
_MAX_AGE = re.compile(r"(?:^|,)\s*max-age=\"?(\d{1,9})", re.IGNORECASE)
_NOT_KEPT = re.compile(r"(?:^|,)\s*no-(?:store|cache)\s*(?:,|=|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document: ``status`` 200…299, or 304 where the ``etag`` sent still holds (then ``body`` is empty).

    ``max_age`` is seconds left to keep it, ``None`` where the peer says nothing; ``final_host`` whom it came from.
    """

    status: int
    body: bytes
    max_age: int | None
    etag: str | None
    content_type: str
    final_host: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a peer said to a message, whatever the status; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def joined(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Header fields by lower-case name, repeated ones joined with a comma (RFC 9110 §5.3)."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def wants_document(status: int, headers: Mapping[str, str]) -> bool:
    """Whether the body of an answer to a fetch is read; refuses errors and what is not JSON."""
    if status in REDIRECTS or status == 304:
        return False
    if not 200 <= status < 300:
        wait = headers.get("retry-after", "")
        raise OutgoingRefusal(
            "http_status",
            f"the answer is HTTP {status}",
            retry_after=int(wait) if re.fullmatch("[0-9]{1,6}", wait) else None,
            extra={"status": status},
        )
    if not _JSON.fullmatch(headers.get("content-type", "").strip()):
        raise OutgoingRefusal("wrong_content_type", "the answer is not JSON")
    _refuse_compressed(headers)
    return True


def wants_answer(status: int, headers: Mapping[str, str]) -> bool:
    """Whether the body of an answer to a message is read: always, but a redirect is refused."""
    if status in REDIRECTS:
        raise OutgoingRefusal("redirect_refused", "a message is not sent on to another place")
    _refuse_compressed(headers)
    return True


def document(answer: Answer, host: str) -> Fetched:
    """The answer to a fetch with what its headers say about keeping it."""
    headers = answer.headers
    etag = headers.get("etag", "")
    return Fetched(
        status=answer.status,
        body=answer.body,
        max_age=max_age(headers),
        etag=etag if _ETAG.fullmatch(etag) else None,
        content_type=headers.get("content-type", ""),
        final_host=host,
    )


def max_age(headers: Mapping[str, str]) -> int | None:
    """Seconds of freshness left: the life the peer gave, less the age a cache has seen; ``None`` if it gave none."""
    policy = headers.get("cache-control", "")
    if _NOT_KEPT.search(policy):
        return 0
    found = _MAX_AGE.search(policy)
    if found is None:
        return None
    age = headers.get("age", "")
    return max(0, int(found[1]) - (int(age) if re.fullmatch("[0-9]{1,9}", age) else 0))


def _refuse_compressed(headers: Mapping[str, str]) -> None:
    """Refuses every content coding, unopened: what a small body inflates to is not ours to find out."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise OutgoingRefusal("content_encoding_refused", "the answer is compressed though it was asked for plain")
