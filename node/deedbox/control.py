"""The owner's socket: how a command beside a running node asks it for something, down the same road (decision 34).

A Unix socket in the data folder, for its owner alone (0600, and the kernel's word on who connected, SO_PEERCRED). One
JSON line ``{"object": KEY, "arguments": {…}}`` is answered by one JSON line: ``{"ok": true, "value": …, "receipt": …}``
or ``{"ok": false, "error": code, …}``.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deedbox.refusals import Fault, Refusal

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.settings import Settings

NAME = "control.sock"
MAX_LINE = 1_048_576
"""Bytes of a line, in either direction."""
LONGEST_ADDRESS = 100
"""Bytes of a path that surely fit a Unix socket's address (unix(7): 108 with its end)."""
ASKED_WITHIN = 10.0
ANSWERED_WITHIN = 120.0
TAKEN_OVER_WITHIN = 2.0
"""Seconds."""
_PEER = struct.Struct("3i")


def socket_path(settings: Settings) -> Path:
    """Where the socket is: beside the database file, or with the keys where the database is a server's."""
    from deedbox.storage.database import sqlite_path

    kept = sqlite_path(settings.node.database)
    return (kept.parent if kept else settings.node.keys) / NAME


# --- the node's side ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(node: Node) -> AsyncIterator[None]:
    """Answer the owner's commands until the block ends; of several processes one does, and another when it is gone."""
    if not hasattr(socket, "SO_PEERCRED"):
        node.log.warning("no_control_socket", detail="this system does not tell who connects")
        yield
        return
    path = socket_path(node.kernel.settings)
    with ExitStack() as held:
        sock = _taken(path, held)
        if sock is None:
            node.log.info("control_socket_taken", detail="another process of this node answers the owner")
        task = asyncio.create_task(_accept(node, sock) if sock else _wait_and_accept(node, path, held), name="control")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _wait_and_accept(node: Node, path: Path, held: ExitStack) -> None:
    while True:
        await asyncio.sleep(TAKEN_OVER_WITHIN)
        sock = _taken(path, held)
        if sock is not None:
            await _accept(node, sock)


def _taken(path: Path, held: ExitStack) -> socket.socket | None:
    """The socket, bound and let go with ``held``; nothing while another process has its lock."""
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    held.callback(os.close, lock)
    sock = held.enter_context(_bound(path))
    held.callback(path.unlink, missing_ok=True)
    return sock


def _bound(path: Path) -> socket.socket:
    """A listening socket nobody but its owner may connect to, from its first moment on."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with _address(path) as address:
            sock.bind(address)
    finally:
        os.umask(before)
    sock.listen(16)
    sock.setblocking(False)
    return sock


async def _accept(node: Node, listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as conversations:
        while True:
            connection, _ = await loop.sock_accept(listener)
            conversations.create_task(_converse(node, connection))


async def _converse(node: Node, connection: socket.socket) -> None:
    """One question, one answer; whatever goes wrong ends this conversation and nothing else."""
    try:
        uid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE)
        try:
            async with asyncio.timeout(ASKED_WITHIN):
                line = await reader.readline()
            writer.write(json.dumps(await answer(node, line, uid)).encode() + b"\n")
            await writer.drain()
        finally:
            writer.close()
            await writer.wait_closed()
    except (OSError, ValueError, TimeoutError) as error:
        node.log.warning("control_failed", detail=str(error))


async def answer(node: Node, line: bytes, uid: int) -> dict[str, Any]:
    """What a line is answered; never raises."""
    from deedbox.canonical import admit

    try:
        asked = admit(line, limit=MAX_LINE)
        if not isinstance(asked, dict) or not isinstance(asked.get("object"), str):
            raise Refusal("bad_question", 400, "a question is an object and its arguments")
        return await perform(node, asked["object"], asked.get("arguments") or {}, uid)
    except Refusal as refusal:
        return _told(refusal)
    except Exception:
        node.log.exception("control_failed")
        return {"ok": False, "error": "internal", "status": 500}


async def perform(node: Node, object_key: str, arguments: Any, uid: int) -> dict[str, Any]:
    """Ask the node as its owner on this machine; the road believes the user, or not."""
    from deedbox.canonical import digest
    from deedbox.govern.owner import LocalOwner
    from deedbox.intent import Intent
    from deedbox.web import JsonPhrasing

    intent = Intent(
        surface="control",
        at=node.kernel.clock.now(),
        object_key=object_key,
        arguments=arguments,
        phrasing=JsonPhrasing(),
        credential=LocalOwner(uid),
        inputs_sha256=digest(arguments),
        request_id=node.ids.new("req"),
    )
    reply = await node.govern(intent)
    outcome = reply.outcome
    if reply.refusal is not None:
        return _told(reply.refusal)
    receipt = reply.receipt.public() if reply.receipt else None
    if outcome.ok:
        return {"ok": True, "value": outcome.value, "receipt": receipt}
    said = {"error": outcome.code, "status": outcome.status, "detail": outcome.detail, "next_step": outcome.next_step}
    return {"ok": False, **said, "extra": dict(outcome.extra), "receipt": receipt}


def _told(refusal: Refusal) -> dict[str, Any]:
    said = {"error": refusal.code, "status": refusal.status, "detail": refusal.detail, "next_step": refusal.next_step}
    return {"ok": False, **said, "extra": dict(refusal.extra)}


# --- the command's side ------------------------------------------------------------------------------------------


def call(path: Path, object_key: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The running node's answer, or nothing if no node listens."""
    connection = _connected(path)
    if connection is None:
        return None
    with connection:
        connection.settimeout(ANSWERED_WITHIN)
        try:
            connection.sendall(json.dumps({"object": object_key, "arguments": dict(arguments)}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                said = json.loads(lines.readline(MAX_LINE) or b"null")
        except (OSError, ValueError) as error:
            raise _unanswered(str(error)) from None
    if not isinstance(said, dict):
        raise _unanswered("it hung up")
    return said


def _unanswered(detail: str) -> Refusal:
    return Refusal(
        "no_answer",
        503,
        f"the running node did not answer: {detail}",
        next_step="look in its log whether it was done before asking again",
        fault=Fault.OURS,
    )


def _connected(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(path) as address:
            connection.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise Refusal("control_refused", 403, f"the node's socket: {error.strerror}", fault=Fault.OURS) from None
    return connection


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """The path as a socket's address; one too long goes by way of its folder's descriptor."""
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
