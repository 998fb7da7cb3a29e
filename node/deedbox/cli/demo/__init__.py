"""`deedbox demo`: two nodes of different domains on this machine, a conversation under a capability, and its proof."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from deedbox.cli.telling import Told

if TYPE_CHECKING:
    from deedbox.cli.demo.report import Report
    from deedbox.cli.init import Founded


@click.command(cls=Told, example="deedbox demo --json")
@click.option("--json", "as_json", is_flag=True, help="Say nothing but one line of JSON at the end.")
@click.option("--keep", is_flag=True, help="Keep the folder with both nodes.")
@click.option("--stay", is_flag=True, help="Leave both nodes running afterwards, until interrupted.")
@click.pass_context
def demo(ctx: click.Context, as_json: bool, keep: bool, stay: bool) -> None:
    """Run two federating nodes, alpha.test and beta.test, end to end, and check what must hold.

    Everything is real and stays on this machine: two databases, two sets of keys, HTTPS under a throw-away
    authority. Ends with status 0 only if every check passed.
    """
    from deedbox.cli.demo.report import Report

    report = Report(quiet=as_json)
    folder = Path(tempfile.mkdtemp(prefix="deedbox-demo-"))
    try:
        made: list[Founded] = []
        report.proving("the demo itself", lambda: _play(folder, report, made))
        report.finish()
        if stay and report.ok:
            _stay(made)
    finally:
        if keep:
            click.echo(f"both nodes are kept in {folder}", err=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    ctx.exit(0 if report.ok else 1)


def _play(folder: Path, report: Report, made: list[Founded]) -> None:
    """Found both nodes, play every step while they serve, and prove it all when they have stopped."""
    from deedbox.cli.demo import crossing, ledgers
    from deedbox.cli.demo.scene import Scene, founded, playing
    from deedbox.cli.opening import run

    alpha, beta = founded(folder)
    made += (alpha, beta)

    async def play() -> Scene:
        async with playing(alpha, beta, report) as scene:
            for step in crossing.STEPS:
                await report.trying(step.__name__, step(scene))
            return scene

    ledgers.prove(run(play), folder)


def _stay(made: list[Founded]) -> None:
    from deedbox.cli.demo.scene import linger
    from deedbox.cli.opening import run

    run(lambda: linger(*made))
