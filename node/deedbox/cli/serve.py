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

from deedbox.cli.settings import FILE, settings_file, settings_of
from deedbox.cli.telling import Told, config_option

if TYPE_CHECKING:
    from deedbox.settings import Settings

TRIED = "try.test"


def _address(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    from deedbox.settings import parse_address

    try:
        if given is not None:
            parse_address(given)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None
    return given


@click.command(cls=Told, example="deedbox serve --config /etc/deedbox/deedbox.toml")
@config_option
@click.option(
    "--listen", metavar="HOST:PORT", callback=_address, help="Instead of node.listen; port 0 takes a free one."
)
def serve(config: str | None, listen: str | None) -> None:
    """Serve a node until it is stopped by SIGINT or SIGTERM.

    Without any settings file this is try mode: a node on loopback with a throw-away folder, keys and name.
    """
    gc.disable()  # what is made while a node starts is kept; it collects again once it serves
    if settings_file(config) is None:
        with _to_try() as (chosen, authority):
            _serve(chosen, listen, authority)
    else:
        _serve(settings_of(config), listen)


def _serve(chosen: Settings, listen: str | None, authority: Path | None = None) -> None:
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
                lines = [f"ready: {here.node.domain} on {scheme}://{host}:{port}"]
                if authority:
                    reached = f"--cacert {authority} --connect-to {here.node.domain}:443:{host}:{port}"
                    lines.append(f"       curl {reached} https://{here.node.domain}/.well-known/oip.json")
                await serve_until_stopped(here.node, sock, context, lambda: click.echo("\n".join(lines)))

    run(until_stopped)


@contextmanager
def _to_try() -> Iterator[tuple[Settings, Path]]:
    """A node that is gone when it stops, and who vouches for it; folder and owner key are told on standard error."""
    from deedbox.cli.init import found

    with tempfile.TemporaryDirectory(prefix="deedbox-try-") as folder:
        shared = Path(folder) / "development"
        made = found(TRIED, Path(folder), development=shared)
        click.echo(f"try mode: everything is in {folder} and goes when this stops", err=True)
        click.echo(f"          owner key {made.owner_key}", err=True)
        click.echo(f"          for commands: --config {made.folder / FILE}", err=True)
        yield made.settings, shared / "authority" / "trust.pem"
