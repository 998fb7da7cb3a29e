"""The client: one name, one checked address, one deadline.

RFC 9110 over HTTP/1.1 and TLS, the name verified by RFC 9525; limits by OIP 1.2 §7.5. The address that was judged is
the one connected to, while SNI, ``Host`` and the certificate keep the name.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urljoin

from deedbox.clock import Clock, SystemClock
from deedbox.domains import HttpsAddress, https_address, https_path, is_development, wire_domain
from deedbox.outgoing.addresses import Resolver, SystemResolver
from deedbox.outgoing.answers import REDIRECTS, Answer, Fetched, document, joined, wants_answer, wants_document
from deedbox.outgoing.destinations import Destinations, DevelopmentTrust
from deedbox.outgoing.refusal import OutgoingRefusal
from deedbox.outgoing.turns import Turns
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    import httpcore2

DISCOVERY_LIMIT = 262_144
"""Bytes of an ``oip.json``, or of a peer's answer to a message."""
DOCUMENT_LIMIT = 65_536
"""Bytes of every other document."""

MAX_HOPS = 2
ATTEMPT_SECONDS = 2.0
CONNECTIONS = 64
KEPT_SECONDS = 4.0  # below the five seconds after which common servers hang up on an idle connection

Connect = Callable[[str, int], Awaitable["httpcore2.AsyncNetworkStream"]]
"""Opens a TCP stream to an address literal and a port; it never sees a name."""
Wants = Callable[[int, Mapping[str, str]], bool]


class Outgoing:
    """One guarded client for everything the node fetches and delivers; enter it once, share it, leave it at the end.

    ``resolver`` and ``connect`` are the machine's own unless a test says otherwise; ``ssl_context`` verifies peers and
    must check names; ``development`` admits ``.test``. ``deadline`` is the seconds a whole fetch may take.
    """

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        development: DevelopmentTrust | None = None,
        connect: Connect | None = None,
        clock: Clock | None = None,
        deadline: float = 8.0,
        fetches_per_minute: int = 30,
        posts_per_minute: int = 240,
    ) -> None:
        if ssl_context and not (ssl_context.check_hostname and ssl_context.verify_mode is ssl.CERT_REQUIRED):
            raise ValueError("a context that does not verify names and certificates is no trust")
        self._trust = ssl_context
        self._development = development
        self._destinations = Destinations(resolver or SystemResolver(), development)
        self._connect = connect or _connect
        self._turns = Turns(clock or SystemClock())
        self._deadline = deadline
        self._fetches_per_minute = fetches_per_minute
        self._posts_per_minute = posts_per_minute
        self._pools: dict[ssl.SSLContext, httpcore2.AsyncConnectionPool] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every kept connection."""
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.aclose()

    async def get_json(
        self,
        host: str,
        path: str,
        *,
        limit: int = DOCUMENT_LIMIT,
        accept: str = "application/json",
        etag: str | None = None,
    ) -> Fetched:
        """A JSON document of ``limit`` bytes at most, over at most two redirects, each checked like the first.

        The body is not parsed, and nothing here says whom it speaks for: the caller compares the domain it names.
        Raises ``OutgoingRefusal``, and ``Refusal("bad_domain")`` before anything is sent.
        """
        target = self._target(host, 443, path)
        headers = {"Accept": accept} | ({"If-None-Match": etag} if etag else {})
        with _failures(target.host):
            async with asyncio.timeout(self._deadline):
                return await self._follow(target, headers, limit)

    async def post(
        self,
        host: str,
        port: int,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,  # noqa: ASYNC109 - a deadline over the whole exchange, kept by asyncio.timeout below
        response_limit: int = DISCOVERY_LIMIT,
    ) -> Answer:
        """The peer's answer to ``body``, whatever its status; a redirect is refused, for the message was not for there.

        Raises ``OutgoingRefusal`` whose ``sent`` says whether the peer may have the body, and never tries again itself.
        """
        target = self._target(host, port, path)
        self._count("POST", target.host, self._posts_per_minute)
        sending = _Body(body)
        framing = {"Content-Type": content_type, "Content-Length": str(len(body))}
        try:
            with _failures(target.host):
                async with asyncio.timeout(timeout):
                    answer = await self._exchange(
                        "POST", target, {**(headers or {}), **framing}, sending, response_limit, wants_answer
                    )
        except OutgoingRefusal as refusal:
            refusal.sent = sending.left
            raise
        return answer

    async def _follow(self, target: HttpsAddress, headers: Mapping[str, str], limit: int) -> Fetched:
        for hop in range(MAX_HOPS + 1):
            # Where others send us is counted apart: their redirects must not use up what a host's own document needs.
            self._count("HOP" if hop else "GET", target.host, self._fetches_per_minute)
            answer = await self._exchange("GET", target, headers, None, limit, wants_document)
            if answer.status not in REDIRECTS:
                return document(answer, target.host)
            target = self._next_hop(target, answer.headers.get("location", ""))
        raise OutgoingRefusal("redirect_refused", f"more than {MAX_HOPS} redirects")

    async def _exchange(
        self,
        method: str,
        target: HttpsAddress,
        headers: Mapping[str, str],
        body: _Body | None,
        limit: int,
        wants: Wants,
    ) -> Answer:
        import httpcore2

        url = httpcore2.URL(scheme="https", host=target.host, port=target.port, target=target.path)
        asked = {"User-Agent": "deedbox", "Accept-Encoding": "identity", **headers}
        content = body.chunks() if body else None
        async with (
            self._turns.turn(target.host),
            self._pool(target.host).stream(method, url, headers=list(asked.items()), content=content) as response,
        ):
            answered = joined(response.headers)
            wanted = wants(response.status, answered)
            return Answer(response.status, answered, await _read(response, answered, limit) if wanted else b"")

    def _pool(self, host: str) -> httpcore2.AsyncConnectionPool:
        """Connections are kept by trust, so what the local authority signs is worth nothing for a public name."""
        import httpcore2

        if self._development and is_development(host):
            trust = self._development.trust()
        else:
            trust = self._trust = self._trust or ssl.create_default_context()
        if trust not in self._pools:
            self._pools[trust] = httpcore2.AsyncConnectionPool(
                ssl_context=trust,
                max_connections=CONNECTIONS,
                keepalive_expiry=KEPT_SECONDS,
                network_backend=cast("httpcore2.AsyncNetworkBackend", _Network(self._destinations, self._connect)),
            )
        return self._pools[trust]

    def _target(self, host: str, port: int, path: str) -> HttpsAddress:
        name = wire_domain(host, development=self._development is not None)
        if port != 443 and port != self._destinations.development_port(name):
            raise OutgoingRefusal("address_refused", f"port {port} of {name} is not 443")
        return HttpsAddress(name, port, https_path(path))

    def _next_hop(self, source: HttpsAddress, location: str) -> HttpsAddress:
        try:
            url = urljoin(str(source), location) if location else ""
            target = self._target(*https_address(url, development=self._development is not None))
        except (Refusal, ValueError):
            raise OutgoingRefusal("redirect_refused", f"{source.host} redirects to where we do not go") from None
        if is_development(target.host) and not is_development(source.host):
            raise OutgoingRefusal("redirect_refused", f"{source.host} redirects into this machine")
        return target

    def _count(self, method: str, host: str, per_minute: int) -> None:
        """Fetches and deliveries are counted apart, so that a busy conversation never costs us a peer's new key."""
        wait = self._turns.count(f"{method} {host}", per_minute)
        if wait:
            raise OutgoingRefusal("too_many_fetches", f"{host} was asked {per_minute} times", retry_after=wait)


class _Network:
    """What lies underneath the HTTP client, in the shape of httpcore2's ``AsyncNetworkBackend``."""

    def __init__(self, destinations: Destinations, connect: Connect) -> None:
        self._destinations = destinations
        self._connect = connect

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's signature; the deadline is the caller's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        import httpcore2

        *others, last = await self._destinations.of(host, port)
        for place in others:
            with suppress(OSError, httpcore2.NetworkError):
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    return await self._connect(*place)
        return await self._connect(*last)


class _Body:
    """A request body that remembers whether any of it has left."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.left = False

    async def chunks(self) -> AsyncIterator[bytes]:
        self.left = True
        yield self._content


async def _connect(address: str, port: int) -> httpcore2.AsyncNetworkStream:
    import httpcore2

    return await httpcore2.AnyIOBackend().connect_tcp(address, port)


async def _read(response: httpcore2.Response, headers: Mapping[str, str], limit: int) -> bytes:
    """The raw body, given up at the first byte over the limit."""
    announced = headers.get("content-length", "")
    body = bytearray()
    if not (announced.isdecimal() and int(announced[:12]) > limit):
        async for chunk in response.aiter_stream():
            body += chunk
            if len(body) > limit:
                break
        else:
            return bytes(body)
    raise OutgoingRefusal("response_too_large", f"the answer is longer than {limit} bytes", extra={"limit": limit})


@contextmanager
def _failures(host: str) -> Iterator[None]:
    import httpcore2

    try:
        yield
    except (TimeoutError, httpcore2.TimeoutException) as error:
        raise OutgoingRefusal("timed_out", f"{host} did not answer in time") from error
    except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        raise OutgoingRefusal("unreachable", f"{host} {_why(error)}") from error


def _why(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "has no certificate we trust for that name"
        cause = cause.__cause__ or cause.__context__
    return "could not be reached, or broke off"
