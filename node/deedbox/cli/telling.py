"""How commands speak: an example in every help, one JSON value under `--json`, a no with its next step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import rich_click as click

from deedbox.refusals import Refusal

JSON = "deedbox.json"
"""In a context's meta: whether the answer is for a machine."""
REFUSED = 1
PIPED_WIDTH = 160
Function = TypeVar("Function", bound=Callable[..., Any])


class Told(click.RichCommand):
    """A command with an example, shown last in its help."""

    def __init__(self, *arguments: Any, example: str, **how: Any) -> None:
        how["epilog"] = f"Example: {example}"
        super().__init__(*arguments, **how)
        self.example = example


def json_option(function: Function) -> Function:
    """``--json``: the answer as one JSON value on standard output, refusals too."""

    def remember(ctx: click.Context, _: click.Parameter, chosen: bool) -> bool:
        ctx.meta[JSON] = chosen
        return chosen

    return click.option("--json", "as_json", is_flag=True, callback=remember, help="Answer with JSON.")(function)


def config_option(function: Function) -> Function:
    """``--config FILE``, else ``DEEDBOX_CONFIG``, else ``./deedbox.toml``."""
    return click.option(
        "--config",
        "config",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="The settings file; ./deedbox.toml if not given.",
    )(function)


@contextmanager
def refusals_told(ctx: click.Context) -> Iterator[None]:
    """A refusal ends the command with status 1: a line for people, a JSON value for machines."""
    try:
        yield
    except Refusal as refusal:
        tell_refusal(refusal, as_json=bool(ctx.meta.get(JSON)))
        ctx.exit(REFUSED)


def tell_refusal(refusal: Refusal, *, as_json: bool) -> None:
    if as_json:
        said = {"error": refusal.code, "detail": refusal.detail, "next_step": refusal.next_step, **refusal.extra}
        tell_json({"ok": False} | {name: value for name, value in said.items() if value})
        return
    click.echo(f"deedbox: {refusal.detail or refusal.code} ({refusal.code})", err=True)
    if refusal.next_step:
        click.echo(f"         {refusal.next_step}", err=True)


def tell_json(value: Any) -> None:
    """One value, indented, on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def tell_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], title: str = "") -> None:
    """A table that stays whole when it is piped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    Console(highlight=False, width=console.width if console.is_terminal else PIPED_WIDTH).print(table)
