"""The judge's HTTP client: it verifies certificates, follows nothing, inflates nothing and reads a bounded answer.

HTTP/1.1 (RFC 9112) over TLS. For development a name can be pointed at a loopback address and an authority named.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from deedbox_conformance import wire
from deedbox_conformance.clause import Failed

MAX_ANSWER = 1_048_576
_HEADERS = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "deedbox-conformance"}


class Unreachable(Exception):
    """No HTTP answer came: refused, timed out, broken off, or its certificate is not believed."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe: *authority* is a PEM file used instead of the system's; *resolve* maps a name to an address."""

    authority: Path | None = None
    resolve: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=None if self.authority is None else str(self.authority))


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: header names are lower-case, ``seconds`` the time to the last byte."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float = 0.0

    def json(self) -> wire.Json:
        """The body as I-JSON, else the clause has failed."""
        try:
            return wire.parse(self.body)
        except wire.NotCanonical as problem:
            raise Failed(f"{self.named()} is no I-JSON: {problem}") from problem

    def members(self) -> dict[str, wire.Json]:
        """The body as a JSON object, else the clause has failed."""
        value = self.json()
        if not isinstance(value, dict):
            raise Failed(f"{self.named()} is no JSON object")
        return value

    def named(self) -> str:
        return f"the HTTP {self.status} answer of {self.url.partition('?')[0]}"


class Client:
    """Sends one request at a time or several at once; *transport* replaces the network (in-process ASGI)."""

    def __init__(
        self, trust: Trust, *, timeout: float = 30.0, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._resolve, self._tls = trust.resolve, trust.tls()
        self._timeout, self._transport = timeout, transport
        self._by_name: dict[str, httpx2.AsyncClient] = {}

    async def close(self) -> None:
        for inner in self._by_name.values():
            await inner.aclose()

    def _inner(self, name: str) -> httpx2.AsyncClient:
        """One pool a name: two names at one address must not share a connection, whose certificate proves but one."""
        if name not in self._by_name:
            self._by_name[name] = httpx2.AsyncClient(
                verify=self._tls, timeout=self._timeout, trust_env=False, transport=self._transport, headers=_HEADERS
            )
        return self._by_name[name]

    async def send(
        self,
        method: str,
        url: str,
        *,
        content: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer, whatever its status, or :class:`Unreachable`."""
        started = time.monotonic()
        try:
            target = httpx2.URL(url)
            inner = self._inner(target.host)
            request = inner.build_request(method, target, content=content, headers=dict(headers or {}))
            self._direct(request)
            response = await inner.send(request, stream=True)
            try:
                body = await _bounded(response)
            finally:
                await response.aclose()
        except (httpx2.TransportError, httpx2.InvalidURL, OSError) as problem:
            cause = str(problem) or type(problem).__name__
            raise Unreachable(f"{method} {url.partition('?')[0]}: {cause}") from problem
        fields = {name.lower(): value for name, value in response.headers.items()}
        return Answer(url, response.status_code, fields, body, time.monotonic() - started)

    def _direct(self, request: httpx2.Request) -> None:
        """Connect to the address named for this host; certificate and ``Host`` keep the name."""
        name = request.url.host
        target = self._resolve.get(name.lower())
        if target is not None:
            request.extensions = {**request.extensions, "sni_hostname": name}
            request.url = request.url.copy_with(host=target[0], port=target[1])


async def _bounded(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > MAX_ANSWER:
            raise httpx2.ReadError(f"the answer is longer than {MAX_ANSWER} bytes")
    return bytes(body)
