"""The command line: `deedbox COMMAND`. A command's module is imported when the command is used, not before."""

from __future__ import annotations

import os
from importlib import import_module
from typing import NamedTuple

import rich_click as click
from click.shell_completion import CompletionItem

from deedbox.cli.telling import refusals_told

LISTING = "deedbox.listing"
"""In a context's meta while commands are only listed: their modules stay where they are."""


class Place(NamedTuple):
    """Where a command is defined and what it is for."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "init": Place("init", "init", "Write the settings of a new node, make its keys, print its DNS records."),
    "serve": Place("serve", "serve", "Serve a node until it is stopped; without settings, try one."),
    "demo": Place("demo", "demo", "Two nodes of different domains, end to end, with a table of checks."),
    "send": Place("messages", "send", "Send a signed message to an agent and show the verified reply."),
    "mint": Place("capabilities", "mint", "Mint a capability: a token that lets its holder run something here."),
    "revoke": Place("capabilities", "revoke", "Revoke a capability and everything narrowed from it."),
    "explain": Place("capabilities", "explain", "What a capability allows, what is left of it, and why it may fail."),
    "verify": Place("verify", "verify", "Verify a ledger offline, from a database or an export."),
    "ledger": Place("ledger", "ledger", "Verify, export and prove the ledger."),
    "config": Place("config", "config", "Check and show the settings."),
    "plugins": Place("plugins", "plugins", "List what is installed; check a plugin."),
    "conformance": Place("conformance", "conformance", "Judge a node, ours or another, by the clauses of OIP 1.2."),
}


class Commands(click.RichGroup):
    """The core's commands, then those of the facets that a settings file subscribes to."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return _of_a_facet(cmd_name)
        if ctx.meta.get(LISTING):
            return click.RichCommand(name=cmd_name, help=place.summary)
        found = getattr(import_module(f"deedbox.cli.{place.module}"), place.attribute)
        return found if isinstance(found, click.Command) else None

    def format_help(self, ctx: click.RichContext, formatter: click.RichHelpFormatter) -> None:  # type: ignore[override]
        ctx.meta[LISTING] = True
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        ctx.meta[LISTING] = True
        return super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: click.Context) -> object:
        """Whatever a command writes is for its owner's eyes; a refusal is told, not thrown."""
        before = os.umask(0o077)
        try:
            with refusals_told(ctx):
                return super().invoke(ctx)
        finally:
            os.umask(before)


def _of_a_facet(name: str) -> click.Command | None:
    """A command that a subscribed facet adds; looked for only where there is a settings file."""
    from deedbox.cli.settings import settings_file

    path = settings_file(None)
    if path is None or name.startswith("-"):
        return None
    from deedbox.cli.plugins import facet_commands

    return facet_commands(path).get(name)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: deedbox demo",
)
@click.version_option(package_name="deedbox", message="%(prog)s %(version)s")
def main() -> None:
    """A node of the governed agent web: signed messages in, receipts out, on one road.

    A new node: deedbox init DOMAIN, then deedbox serve. The settings are ./deedbox.toml unless --config or
    DEEDBOX_CONFIG names another file.
    """


__all__ = ["COMMANDS", "main"]
