"""The bare-ASGI floor, the yardstick of ``envelopes.ratio_to_floor``: the bare steps behind uvicorn, uvloop, httptools.

Verification and the reply's signature run on the loop thread. Groups of up to 256 share a commit, in one of two ways,
as the node's do: ``thread`` gives a writer thread the whole group, which is what PostgreSQL wants; ``loop`` inserts on
the loop thread and leaves only the commit to a second one, which suits SQLite and is faster. The faster one counts.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Protocol

import orjson
import uvicorn
import uvloop

from tests.bench.bare import GROUP, Door, Journal, Proven

Message = MutableMapping[str, Any]
Done = asyncio.Future[None]


class Commits(Protocol):
    """Where a proven envelope waits for its commit."""

    def put(self, asked: Proven) -> Done:
        """Joins a group; the future is done when the group is on disk."""


class GroupOnThread:
    """A queue and the thread that empties it into the journal, a group at a time."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._loop = journal, asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[Proven, Done]] = queue.SimpleQueue()
        threading.Thread(target=self._write_for_ever, daemon=True).start()

    def put(self, asked: Proven) -> Done:
        done: Done = self._loop.create_future()
        self._queue.put((asked, done))
        return done

    def _write_for_ever(self) -> None:
        while True:
            group = [self._queue.get()]
            while len(group) < GROUP and not self._queue.empty():
                group.append(self._queue.get_nowait())
            self._journal.insert([asked for asked, _ in group])
            self._journal.commit()
            self._loop.call_soon_threadsafe(_resolve, [done for _, done in group])


class CommitAside:
    """Inserts on the loop thread; only the wait for the disk is another thread's."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._loop = journal, asyncio.get_running_loop()
        self._waiting: list[tuple[Proven, Done]] = []
        self._busy = False
        self._queue: queue.SimpleQueue[list[Done]] = queue.SimpleQueue()
        threading.Thread(target=self._commit_for_ever, daemon=True).start()

    def put(self, asked: Proven) -> Done:
        done: Done = self._loop.create_future()
        self._waiting.append((asked, done))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._insert)
        return done

    def _insert(self) -> None:
        group, self._waiting = self._waiting[:GROUP], self._waiting[GROUP:]
        self._journal.insert([asked for asked, _ in group])
        self._queue.put([done for _, done in group])

    def _commit_for_ever(self) -> None:
        while True:
            group = self._queue.get()
            self._journal.commit()
            self._loop.call_soon_threadsafe(self._committed, group)

    def _committed(self, group: list[Done]) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            self._insert()
        _resolve(group)


def _resolve(futures: list[Done]) -> None:
    for done in futures:
        if not done.done():
            done.set_result(None)


class FloorApp:
    """One route, any path: a signed query in, a signed result out."""

    def __init__(self, commits: Commits) -> None:
        self._door, self._commits = Door(), commits

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        message = await receive()
        raw: bytes = message["body"]
        while message["more_body"]:
            message = await receive()
            raw += message["body"]
        asked = self._door.prove(raw)
        await self._commits.put(asked)
        reply = self._door.reply(asked)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})


async def _serve(folder: Path, inserts: str) -> None:
    journal = Journal(folder)
    app = FloorApp(GroupOnThread(journal) if inserts == "thread" else CommitAside(journal))
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", access_log=False, log_level="warning")
    print(orjson.dumps({"port": listening.getsockname()[1]}).decode(), flush=True)
    await uvicorn.Server(config).serve(sockets=[listening])


def main() -> None:
    """Serves until SIGTERM; prints its port as JSON when it listens."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path, required=True, help="where the database is made")
    options.add_argument("--inserts", choices=("thread", "loop"), default="thread", help="which thread inserts")
    chosen = options.parse_args()
    uvloop.run(_serve(chosen.folder, chosen.inserts))


if __name__ == "__main__":
    main()
