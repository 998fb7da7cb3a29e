"""A node without a listener, on whichever database a test names: for what lies below the surfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deedbox.clock import Clock
from deedbox.facets import Plugin
from deedbox.kernel import open_kernel
from deedbox.ledger.sealing import keep_sealed
from deedbox.node import Node, assemble, schema_histories
from deedbox.outgoing import Outgoing
from deedbox.storage.migrate import upgrade
from deedbox.testing import settings_for, verify_ledger


@asynccontextmanager
async def a_bare_node(
    folder: Path,
    *plugins: type[Plugin],
    database: str,
    clock: Clock,
    outgoing: Outgoing | None = None,
    development: Path | None = None,
) -> AsyncIterator[Node]:
    """The kernel of ``alpha.test`` and these plugins; its ledger is verified when the block ends."""
    more = {"development": development} if development else {}
    settings = settings_for(folder, "alpha.test", {}, node={"database": database, **more})
    settings.node.keys.mkdir(mode=0o700, exist_ok=True)
    classes = list(plugins)
    await asyncio.to_thread(upgrade, database, schema_histories(classes))
    kernel = await open_kernel(settings, clock=clock, outgoing=outgoing)
    try:
        node = assemble(kernel, classes)
        yield node
        await keep_sealed(node, whole=True)
    finally:
        await kernel.close()
    await asyncio.to_thread(verify_ledger, kernel)
