"""Opening a node in this process: for serving it, for a command with no server beside it, for the demo."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from deedbox.control import call, perform, socket_path
from deedbox.refusals import Refusal, Unavailable

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.serve import Development
    from deedbox.settings import Settings

Result = TypeVar("Result")
STARTING = 10.0
"""Seconds a node may take from having its database to answering its owner."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A node whose database is ours, and the switch for ``.test`` names if its settings turn it on."""

    node: Node
    switch: Development | None

    @contextmanager
    def listener(self) -> Iterator[tuple[socket.socket, ssl.SSLContext | None]]:
        """The bound socket of the settings and its TLS context; in development under the node's name meanwhile."""
        from deedbox import serve

        with ExitStack() as stack:
            sock = stack.enter_context(serve.listener(self.node.kernel.settings.node.listen))
            if self.switch is None or self.node.kernel.settings.node.tls.mode in ("proxy", "files"):
                yield sock, serve.tls_context(self.node.kernel.settings)
            else:
                yield sock, stack.enter_context(self.switch.serving(sock.getsockname()[1]))


@asynccontextmanager
async def opened(settings: Settings, *, level: int = logging.ERROR) -> AsyncIterator[Opened]:
    """Check the schema, open the database under its lock, assemble; close everything at the end."""
    from deedbox import logs, serve
    from deedbox.kernel import open_kernel
    from deedbox.node import assemble, facet_classes, schema_histories
    from deedbox.outgoing import Outgoing
    from deedbox.storage.migrate import require_current

    logs.configure(settings.node.log, level)
    classes = facet_classes(settings.facets, {})
    require_current(settings.node.database, schema_histories(classes))
    switch = serve.development_of(settings, classes)
    kernel = await open_kernel(settings, outgoing=Outgoing(development=switch))
    try:
        yield Opened(assemble(kernel, classes), switch)
    finally:
        await kernel.close()


def ask(settings: Settings, object_key: str, arguments: Mapping[str, Any], *, facet: str) -> dict[str, Any]:
    """Ask the node for something as its owner: the running one, else one opened for this question.

    ``facet`` is the one that offers it. The answer is ``{"ok": true, "value": …, "receipt": …}``; a no is raised as
    the refusal it was.
    """
    told = _asked(settings, object_key, arguments)
    if told.get("ok"):
        return told
    if told.get("error") == "unknown_object":
        raise Refusal("facet_missing", 404, f"this needs the facet {facet}", next_step=f"add a table [facets.{facet}]")
    raise Refusal(
        str(told.get("error")),
        int(told.get("status") or 500),
        str(told.get("detail") or ""),
        next_step=str(told.get("next_step") or ""),
        extra=dict(told.get("extra") or {}),
    )


def _asked(settings: Settings, object_key: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A node that has its database and not yet its socket is starting, and is waited for."""
    patience = time.monotonic() + STARTING
    while True:
        told = call(socket_path(settings), object_key, arguments)
        if told is not None:
            return told
        try:
            return run(lambda: _ask_alone(settings, object_key, arguments))
        except Unavailable as busy:
            if busy.code != "database_in_use" or time.monotonic() > patience:
                raise
            time.sleep(0.1)


async def _ask_alone(settings: Settings, object_key: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    from deedbox.app import running

    async with opened(settings) as here, running(here.node):
        return await perform(here.node, object_key, dict(arguments), os.geteuid())


def run(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run to the end on the loop the node serves on."""
    import uvloop

    async def main() -> Result:
        return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
