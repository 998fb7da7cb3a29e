"""`deedbox serve`: the node of a settings file, or a node to try, until it is stopped."""

from __future__ import annotations

import gc
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from deedbox.cli.settings import settings_file, settings_of
from deedbox.cli.telling import Told, config_option

if TYPE_CHECKING:
    from deedbox.settings import Settings

TRIED = "try.test"


@click.command(cls=Told, example="deedbox serve --config /etc/deedbox/deedbox.toml")
@config_option
@click.option("--listen", metavar="HOST:PORT", help="Instead of node.listen; port 0 takes a free one.")
def serve(config: str | None, listen: str | None) -> None:
    """Serve a node until it is stopped by SIGINT or SIGTERM.

    Without any settings file this is try mode: a node on loopback with a throw-away folder, keys and name.
    """
    gc.disable()  # what is made while a node starts is kept; it collects again once it serves
    if settings_file(config) is None:
        with _to_try() as chosen:
            _serve(chosen, listen)
    else:
        _serve(settings_of(config), listen)


def _serve(chosen: Settings, listen: str | None) -> None:
    from deedbox.cli.opening import opened, run
    from deedbox.serve import serve_until_stopped

    if listen:
        node = chosen.node.model_copy(update={"listen": listen})
        chosen = chosen.model_copy(update={"node": node})

    async def until_stopped() -> None:
        async with opened(chosen, level=logging.INFO) as here:
            with here.listener() as (sock, context):
                host, port = sock.getsockname()[:2]
                scheme = "https" if context else "http"
                line = f"ready: {here.node.domain} on {scheme}://{host}:{port}"
                await serve_until_stopped(here.node, sock, context, lambda: click.echo(line))

    run(until_stopped)


@contextmanager
def _to_try() -> Iterator[Settings]:
    """A node that is gone when it stops; its folder and owner key are told on standard error."""
    from deedbox.cli.init import found

    with tempfile.TemporaryDirectory(prefix="deedbox-try-") as folder:
        made = found(TRIED, Path(folder), development=Path(folder) / "development")
        click.echo(f"try mode: everything is in {folder} and goes when this stops", err=True)
        click.echo(f"          owner key {made.owner_key}", err=True)
        click.echo(f"          for curl: --cacert {folder}/development/authority/trust.pem", err=True)
        yield made.settings
