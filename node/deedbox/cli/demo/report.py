"""What the demo found: checks with pass marks, told as they are made and in one table, or in one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass

import rich_click as click

from deedbox.cli.telling import tell_table


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold."""

    name: str
    ok: bool
    detail: str


class Report:
    """Gathers checks; ``quiet`` says nothing before the last line."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.checks: list[Check] = []

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def title(self, text: str) -> None:
        if not self.quiet:
            click.secho(f"\n{text}", bold=True)

    def say(self, text: str) -> None:
        if not self.quiet:
            click.echo(f"  {text}")

    def table(self, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        if not self.quiet:
            tell_table(columns, rows)

    def check(self, name: str, ok: bool, detail: str = "") -> bool:
        """Note whether something holds."""
        self.checks.append(Check(name, bool(ok), detail))
        if not self.quiet:
            mark = click.style("pass", fg="green") if ok else click.style("FAIL", fg="red")
            click.echo(f"  {mark}  {name}: {detail}")
        return bool(ok)

    def refused(self, name: str, reason: object, wanted: str, detail: str = "") -> bool:
        """Note that something was refused, and for this very reason."""
        said = f"refused with {reason}" if reason else "not refused"
        return self.check(name, reason == wanted, f"{said}{'; ' if detail else ''}{detail}")

    async def trying(self, name: str, step: Awaitable[None]) -> None:
        """A step that breaks is a check that failed, and the next step is tried all the same."""
        try:
            await step
        except Exception as error:
            self.check(name, False, f"{type(error).__name__}: {error}")

    def proving(self, name: str, step: Callable[[], None]) -> None:
        """The same for a step that waits for nobody."""
        try:
            step()
        except Exception as error:
            self.check(name, False, f"{type(error).__name__}: {error}")

    def finish(self) -> None:
        """The last word."""
        if self.quiet:
            click.echo(json.dumps({"ok": self.ok, "checks": [asdict(check) for check in self.checks]}))
            return
        self.title("What was checked")
        self.table(("", "check", "detail"), [("ok" if c.ok else "FAIL", c.name, c.detail) for c in self.checks])
        passed = sum(check.ok for check in self.checks)
        click.echo(f"{passed} of {len(self.checks)} checks passed")
