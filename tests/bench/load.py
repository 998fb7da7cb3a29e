"""The load client: sends distinct signed envelopes over keep-alive connections and checks every reply afterwards.

It runs in a process of its own, signs everything before the clock starts, and speaks just enough HTTP/1.1
(RFC 9112: ``content-length`` framing) to cost the machine little while it measures.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import cast
from urllib.parse import urlsplit

import orjson
import uvloop

from tests.bench.envelopes import SENDERS, invoke, query, signed
from tests.bench.process import cpu_seconds, resident_mb
from tests.bench.replies import judge_replies

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """What to send where. ``pid`` is the server's, for its CPU and memory; ``ca`` a PEM file when the URL is https."""

    url: str
    recipient: str
    pid: int
    count: int
    warm_up: int = 512
    connections: int = 64
    ca: str | None = None
    server_name: str | None = None
    capability: str | None = None
    object_key: str = "ECHO"
    recipient_jwk: dict[str, str] | None = None


@dataclass
class Tally:
    """One timed stretch: reply per request number, latencies in seconds, statuses other than 200."""

    replies: dict[int, bytes] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request in flight."""

    def __init__(self, requests: Iterator[tuple[int, bytes]], tally: Tally, idle: asyncio.Future[None]) -> None:
        self._requests, self._tally, self._idle = requests, tally, idle
        self._buffer, self._number, self._sent = b"", 0, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, received: bytes) -> None:
        self._buffer = self._buffer + received if self._buffer else received
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _content_length(self._buffer[:end])
        if len(self._buffer) < end + 4 + length:
            return
        self._take(int(self._buffer[9:12]), self._buffer[end + 4 : end + 4 + length])
        self._buffer = self._buffer[end + 4 + length :]
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._idle.done():
            self._idle.set_exception(ConnectionError(f"the server hung up: {error}"))

    def _take(self, status: int, body: bytes) -> None:
        tally = self._tally
        tally.latencies.append(time.perf_counter() - self._sent)
        tally.replies[self._number] = body
        if status != 200:
            tally.refused[status] = tally.refused.get(status, 0) + 1

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            if not self._idle.done():
                self._idle.set_result(None)
            self._transport.close()
            return
        self._number, raw = request
        self._sent = time.perf_counter()
        self._transport.write(raw)


def _content_length(head: bytes) -> int:
    at = head.find(b"ontent-length:")
    at = at if at >= 0 else head.find(b"ontent-Length:")
    if at < 0:
        raise ConnectionError("a reply without content-length")
    stop = head.find(b"\r", at)
    return int(head[at + 14 : stop if stop > 0 else None])


def _requests(plan: Plan) -> tuple[list[bytes], list[str]]:
    """HTTP requests ready to write, and the message id in each."""
    parts = urlsplit(plan.url)
    host = plan.server_name or parts.netloc
    head = f"POST {parts.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    ready, ids = [], []
    for number in range(plan.warm_up + plan.count):
        sender = SENDERS[number % len(SENDERS)]
        if plan.capability is None:
            envelope = query(sender, plan.recipient, number)
        else:
            envelope = invoke(sender, plan.recipient, number, plan.object_key, plan.capability)
        raw = signed(envelope)
        ready.append(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
        ids.append(str(envelope["id"]))
    return ready, ids


async def _drive(plan: Plan, requests: Iterator[tuple[int, bytes]], tally: Tally) -> float:
    """Sends them all; seconds from the first connection's start to the last reply."""
    loop = asyncio.get_running_loop()
    parts = urlsplit(plan.url)
    tls = ssl.create_default_context(cafile=plan.ca) if parts.scheme == "https" else None
    idle = [loop.create_future() for _ in range(plan.connections)]
    began = time.perf_counter()
    for done in idle:
        await loop.create_connection(
            lambda done=done: Connection(requests, tally, done),
            str(parts.hostname),
            int(parts.port or 443),
            ssl=tls,
            server_hostname=plan.server_name if tls else None,
        )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*idle)
    return time.perf_counter() - began


async def run(plan: Plan) -> dict[str, object]:
    """Warm up, then measure: the figures of one run as a JSON object."""
    requests, ids = _requests(plan)
    numbered = enumerate(requests)
    warm = Tally()
    await _drive(plan, iter([next(numbered) for _ in range(plan.warm_up)]), warm)
    tally = Tally()
    server_before, own_before = cpu_seconds(plan.pid), time.process_time()
    seconds = await _drive(plan, numbered, tally)
    own_after, server_after = time.process_time(), cpu_seconds(plan.pid)
    wrong = judge_replies(tally.replies, ids, plan.recipient, plan.recipient_jwk)
    wrong += judge_replies(warm.replies, ids, plan.recipient, None)
    latencies = sorted(tally.latencies)
    return {
        "per_s": plan.count / seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
        "not_200": {str(status): number for status, number in (warm.refused | tally.refused).items()},
        "wrong": len(wrong),
        "first_wrong": wrong[0] if wrong else None,
        "server_cpu_us": (server_after - server_before) / plan.count * 1e6,
        "server_cores": (server_after - server_before) / seconds,
        "client_cores": (own_after - own_before) / seconds,
        "server_rss_mb": resident_mb(plan.pid),
    }


def main() -> None:
    """Reads a plan as JSON from standard input, prints the figures as JSON."""
    plan = Plan(**orjson.loads(sys.stdin.buffer.read()))
    print(orjson.dumps(uvloop.run(run(plan))).decode())


def plan_text(plan: Plan) -> bytes:
    """What ``main`` reads."""
    return orjson.dumps(asdict(plan))


if __name__ == "__main__":
    main()
