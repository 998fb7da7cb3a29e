"""How commands speak: an example in every help, one JSON value under `--json`, a no with its next step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import rich_click as click

from deedbox.refusals import Fault, Refusal, Unavailable

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
    except Exception as error:
        refusal = mendable(error)
        if refusal is None:
            raise
        tell_refusal(refusal, as_json=bool(ctx.meta.get(JSON)))
        ctx.exit(REFUSED)


def mendable(error: Exception) -> Refusal | None:
    """A refusal, or what an operator can mend as one: a file that cannot be had, a database that does not open."""
    from deedbox.storage.faults import first_line, unusable

    if isinstance(error, Unavailable) and error.__cause__ is not None:  # its owner is told why, which callers are not
        error.next_step = error.next_step or first_line(error.__cause__)
    if isinstance(error, Refusal):
        return error
    if isinstance(error, OSError) and error.filename is not None:
        return Refusal("unusable_file", 500, f"{error.filename}: {error.strerror}", fault=Fault.OURS)
    return unusable(error)


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
