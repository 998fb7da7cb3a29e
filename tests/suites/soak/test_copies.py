"""Ten thousand copies of one envelope at once: one runs, and everybody else is told which answer it was spent on."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deedbox_conformance import wire
from deedbox_wellknown.development import LocalAuthority
from tests.suites.soak import audit
from tests.suites.soak.homes import Town, a_town

COPIES, CONNECTIONS = 10_000, 64


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with a_town(tmp_path, beta=False) as made:
        yield made


@pytest.mark.case("fed:C1")
async def test_of_ten_thousand_copies_one_runs(town: Town, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    town.alpha.start()
    await town.alpha.ready()
    draft = await town.probe.draft("invoke", {}, capability=town.tokens[f"COUNT {town.peer.domain}"])
    draft["body"] = {"key": "COUNT", "args": "once"}
    draft["body_sha256"] = wire.body_hash(draft)
    envelope = town.probe.sign(draft)
    began = time.monotonic()
    replies = await posted(town, tmp_path, wire.canonical(envelope))
    took = time.monotonic() - began
    answers = [reply for reply in replies if reply["kind"] == "result"]
    assert len(replies) == COPIES
    assert len(answers) == 1
    repeats = [reply["body"] for reply in replies if reply["kind"] == "error"]
    spent_on = {"response_id": answers[0]["id"], "invocation_id": answers[0]["body"]["invocation_id"]}
    assert Counter(body["reason"] for body in repeats) == {"replay_rejected": COPIES - 1}
    assert [body for body in repeats if body["original"] != spent_on] == []
    await town.alpha.stop()
    assert [row["name"] for row in town.alpha.rows("select name from counting_run")] == ["once"]
    kinds = Counter(kind for kind, said in audit.entries(town.alpha) if said.get("msg") == envelope["id"])
    assert kinds == {"executed": 1, "refused": COPIES - 1}
    assert len(town.alpha.rows("select key from govern_claim")) == 1
    audit.uses_agree(town.alpha)
    await asyncio.to_thread(town.alpha.verified)
    with capsys.disabled():
        print(f"\ncopies: {COPIES} over {CONNECTIONS} connections in {took:.0f} s, {COPIES / took:.0f} a second")


async def posted(town: Town, folder: Path, content: bytes) -> list[dict[str, Any]]:
    """What each copy was answered, over connections that are kept and all begin at once."""
    authority = LocalAuthority(folder / "development/authority")
    trust = ssl.create_default_context(cafile=authority.certificate)
    begin = asyncio.Barrier(CONNECTIONS)
    left = iter(range(COPIES))

    async def one() -> list[dict[str, Any]]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", town.alpha.port, ssl=trust, server_hostname=town.alpha.domain
        )
        await begin.wait()
        heard = [await exchange(reader, writer, town.alpha.domain, content) for _ in left]
        writer.close()
        await writer.wait_closed()
        return heard

    return [reply for heard in await asyncio.gather(*(one() for _ in range(CONNECTIONS))) for reply in heard]


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, content: bytes
) -> dict[str, Any]:
    """One request and its answer over a connection that is kept (RFC 9112 §9.3)."""
    head = f"POST /oip/inbox HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    told = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert told.startswith(b"http/1.1 200 "), told
    length = int(told.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    found: dict[str, Any] = json.loads(await reader.readexactly(length))
    return found
