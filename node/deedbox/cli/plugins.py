"""`deedbox plugins`: what is installed, what of it is on, and whether a plugin keeps the rules of its trade."""

from __future__ import annotations

import tempfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from deedbox.cli.settings import settings_file, settings_of
from deedbox.cli.telling import Told, config_option, json_option, tell_json, tell_table
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    pass

TRIED = "check.test"


@click.group(cls=click.RichGroup, epilog="Example: deedbox plugins list")
def plugins() -> None:
    """List what is installed; check a plugin."""


@plugins.command(name="list", cls=Told, example="deedbox plugins list --json")
@config_option
@json_option
def list_(config: str | None, as_json: bool) -> None:
    """Every facet that is installed, and whether the settings subscribe to it; nothing of it is imported."""
    from deedbox.facets import installed

    on = set(settings_of(config).facets) if settings_file(config) else set()
    rows = [_installed(name, point, name in on) for name, point in sorted(installed().items())]
    if as_json:
        tell_json(rows)
        return
    columns = ("facet", "on", "class", "distribution")
    tell_table(columns, [(row["facet"], "on" if row["on"] else "", row["class"], row["distribution"]) for row in rows])


def _installed(name: str, point: EntryPoint, on: bool) -> dict[str, Any]:
    made_by = point.dist
    distribution = f"{made_by.name} {made_by.version}" if made_by else ""
    return {"facet": name, "on": on, "class": point.value, "distribution": distribution}


@plugins.command(cls=Told, example="deedbox plugins check inbox")
@click.argument("name")
@json_option
@click.pass_context
def check(ctx: click.Context, name: str, as_json: bool) -> None:
    """Put an installed plugin, with the facets it requires, into a throw-away node, and say what it brings.

    Ends with status 1 if a node could not start with it.
    """
    found = examined(name)
    if as_json:
        tell_json(found)
    else:
        for each in found["findings"]:
            click.echo(f"{'ok  ' if each['ok'] else 'FAIL'} {each['finding']}")
        for hook, count in found["contributes"].items():
            click.echo(f"     {hook}: {count}")
    ctx.exit(0 if found["ok"] else 1)


def examined(name: str) -> dict[str, Any]:
    """What was found about a plugin: a list of findings, and how much it contributes to each hook."""
    findings: list[dict[str, Any]] = []
    contributes: dict[str, int] = {}

    def note(ok: bool, finding: str) -> bool:
        findings.append({"ok": ok, "finding": finding})
        return ok

    try:
        from deedbox.facets import plugin_class

        plugin = plugin_class(name, {})
        facet = plugin.facet
        note(True, f"{plugin.__module__}.{plugin.__qualname__} carries the facet {facet.name}")
        note(bool(facet.summary), "says in a sentence what it is for" if facet.summary else "has no summary")
        note(bool(facet.obligations), f"promises {len(facet.obligations)} things")
        closed = facet.settings.model_config.get("extra") == "forbid"
        note(closed, "its settings are closed" if closed else "its settings take unknown keys")
        _note_migrations(facet.migrations, note)
        contributes = _assembled(name)
        note(True, "a node starts with it")
    except Refusal as refusal:
        note(False, f"{refusal.detail or refusal.code}. {refusal.next_step}".strip())
    return {"ok": all(each["ok"] for each in findings), "facet": name, "findings": findings, "contributes": contributes}


def _note_migrations(folder: Path | None, note: Any) -> None:
    if folder is None:
        note(True, "keeps no tables")
        return
    steps = sorted(path.name for path in folder.glob("[0-9][0-9][0-9][0-9]_*.py"))
    numbered = [step[:4] for step in steps] == [f"{number:04d}" for number in range(1, len(steps) + 1)]
    note(bool(steps) and numbered, f"{len(steps)} schema steps, {'numbered from 0001' if numbered else 'with a gap'}")


def _assembled(name: str) -> dict[str, int]:
    """A throw-away node with the plugin and what it requires; how many contributions each hook got from it."""
    from deedbox.cli.init import complete
    from deedbox.cli.opening import opened, run

    with tempfile.TemporaryDirectory(prefix="deedbox-check-") as place:
        folder = Path(place)
        tables = "".join(f"[facets.{each}]\n" for each in _required(name))
        (folder / "deedbox.toml").write_text(f'[node]\ndomain = "{TRIED}"\n{tables}')
        settings = complete(folder).settings

        async def count() -> dict[str, int]:
            async with opened(settings) as here:
                given = {hook: here.node.host.contributions(hook) for hook in _hooks()}
                own = {hook: sum(facet.name == name for facet, _ in found) for hook, found in given.items()}
                return {hook: number for hook, number in own.items() if number}

        return run(count)


def _hooks() -> list[str]:
    from deedbox import hookspecs

    return [name for name in vars(hookspecs) if name.startswith("deedbox_")]


def _required(name: str, known: tuple[str, ...] = ()) -> tuple[str, ...]:
    """A facet and all it requires, whatever that requires in turn."""
    from deedbox.facets import plugin_class

    if name in known:
        return known
    known = (*known, name)
    for other in plugin_class(name, {}).facet.requires:
        known = _required(other, known)
    return known


def facet_commands(path: Path) -> dict[str, click.Command]:
    """The commands that the facets of a settings file add, by name; two of a name are an error."""
    from deedbox.node import facet_classes
    from deedbox.settings import load

    found: dict[str, click.Command] = {}
    for plugin in facet_classes(load(path.absolute()).facets, {}):
        declare = plugin.__dict__.get("deedbox_commands")
        if declare is None:
            continue
        if not isinstance(declare, staticmethod):
            raise Refusal("bad_contribution", 500, f"{plugin.facet.name}: deedbox_commands must be a static method")
        for command in declare.__func__():
            if command.name in found:
                raise Refusal("duplicate_contribution", 500, f"two facets add the command {command.name}")
            found[command.name or ""] = command
    return found
