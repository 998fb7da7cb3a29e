"""`deedbox conformance`: hands its arguments to the judge, a program of its own that imports nothing of ours."""

from __future__ import annotations

from importlib import import_module

import rich_click as click

JUDGE = "deedbox_conformance.__main__"


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def conformance(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Judge a node, ours or another, by the clauses of OIP 1.2."""
    ctx.exit(import_module(JUDGE).main(list(arguments)))
