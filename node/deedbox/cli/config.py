"""`deedbox config`: whether the settings make a node, and what they come to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from deedbox.cli.settings import settings_of
from deedbox.cli.telling import Told, config_option, json_option, mendable, tell_json, tell_table
from deedbox.refusals import Refusal, Unavailable

if TYPE_CHECKING:
    from deedbox.facets import Plugin
    from deedbox.settings import Settings

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*(?=@)")


@click.group(cls=click.RichGroup, epilog="Example: deedbox config check")
def config() -> None:
    """Check and show the settings."""


# --- show --------------------------------------------------------------------------------------------------------


@config.command(cls=Told, example="deedbox config show --json")
@config_option
@json_option
def show(config: str | None, as_json: bool) -> None:
    """The settings as the node sees them: the file, the environment laid over it, the defaults below.

    Secrets are references and are not followed.
    """
    values = shown(settings_of(config))
    if as_json:
        tell_json(values)
        return
    for name, value in _flat(values):
        click.echo(f"{name} = {json.dumps(value, ensure_ascii=False)}")


def shown(settings: Settings) -> dict[str, Any]:
    """Plain values, without the password a database's address may hold."""
    values: dict[str, Any] = settings.model_dump(mode="json")
    values["node"]["database"] = _PASSWORD.sub(r"\1:…", values["node"]["database"])
    return values


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        place = f"{above}{name}"
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{place}.")
        elif value is not None:
            yield place, value


# --- check -------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """What was found: each check with its finding, and what the assembled node would offer."""

    checks: list[tuple[str, bool | None, str]] = field(default_factory=list)
    facets: list[dict[str, Any]] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    routes: list[str] = field(default_factory=list)

    def add(self, name: str, ok: bool | None, finding: str) -> None:
        """``ok`` is nothing for what could not be looked at."""
        self.checks.append((name, ok, finding))

    @property
    def ok(self) -> bool:
        return all(ok is not False for _, ok, _ in self.checks)


@config.command(cls=Told, example="deedbox config check --config /etc/deedbox/deedbox.toml")
@config_option
@json_option
@click.pass_context
def check(ctx: click.Context, config: str | None, as_json: bool) -> None:
    """Assemble the node without serving it: facets and why each is on, objects, schema, permissions of the keys.

    Ends with status 1 if the node would not start.
    """
    report = checked(settings_of(config))
    tell_json(_as_json(report)) if as_json else _tell(report)
    ctx.exit(0 if report.ok else 1)


def checked(settings: Settings) -> Report:
    """Everything that can be said without serving; a finding for each thing that would stop the node."""
    from deedbox.node import facet_classes

    report = Report()
    report.add("settings", True, f"{settings.node.domain}, listening on {settings.node.listen}")
    try:
        classes = facet_classes(settings.facets, {})
    except Refusal as refusal:
        report.add("facets", False, f"{refusal.detail}. {refusal.next_step}")
        return report
    report.facets = [_facet(each, settings) for each in classes]
    report.add("facets", True, ", ".join(each.facet.name for each in classes))
    _check_keys(report, settings)
    _check_tls(report, settings)
    if _check_schema(report, settings, classes):
        _check_assembly(report, settings)
    return report


def _facet(plugin: type[Plugin], settings: Settings) -> dict[str, Any]:
    facet = plugin.facet
    wanted = [other for other in settings.facets if facet.name != other]
    return {
        "name": facet.name,
        "summary": facet.summary,
        "on_because": f"[facets.{facet.name}] is in the settings" if facet.name in settings.facets else str(wanted),
        "requires": list(facet.requires),
        "obligations": list(facet.obligations),
        "non_obligations": list(facet.non_obligations),
    }


def _check_keys(report: Report, settings: Settings) -> None:
    folder = settings.node.keys
    if not folder.is_dir():
        report.add("keys", False, f"there is no folder {folder}; run: deedbox init --upgrade")
        return
    open_to_others = [path.name for path in (folder, *folder.iterdir()) if _mode(path) & 0o077]
    owner = "" if (folder / "owner.sha256").exists() else "; nobody has an owner key"
    if open_to_others:
        report.add("keys", False, f"others may read {', '.join(open_to_others)}")
    else:
        report.add("keys", True, f"only we can read {folder}{owner}")


def _check_tls(report: Report, settings: Settings) -> None:
    """Told of only where the node speaks TLS with files of its own."""
    from deedbox.serve import tls_context

    tls = settings.node.tls
    try:
        if tls_context(settings) is not None:
            report.add("TLS", True, f"with {tls.certificate}")
    except Refusal as refusal:
        report.add("TLS", False, f"{refusal.detail}; {refusal.next_step}")


def _mode(path: Path) -> int:
    return path.stat().st_mode


def _check_schema(report: Report, settings: Settings, classes: list[type[Plugin]]) -> bool:
    from deedbox.node import schema_histories
    from deedbox.storage.migrate import require_current

    try:
        require_current(settings.node.database, schema_histories(classes))
    except Exception as error:
        refusal = mendable(error)
        if refusal is None:
            raise
        report.add("schema", False, f"{refusal.detail}; {refusal.next_step}")
        return False
    report.add("schema", True, "is this release's")
    return True


def _check_assembly(report: Report, settings: Settings) -> None:
    from deedbox.cli.opening import opened, run

    async def look() -> None:
        async with opened(settings) as here:
            report.objects = [each.key for each in here.node.catalog]
            report.routes = sorted(path for route in here.node.routes for path in getattr(route, "paths", ()))

    try:
        run(look)
    except Unavailable as busy:
        report.add("assembly", None, f"not tried: {busy.detail}")
    except Refusal as refusal:
        report.add("assembly", False, f"{refusal.detail or refusal.code}. {refusal.next_step}".strip())
    else:
        report.add("assembly", True, f"{len(report.objects)} objects, {len(report.routes)} routes")


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "checks": [{"name": name, "ok": ok, "finding": finding} for name, ok, finding in report.checks],
        "facets": report.facets,
        "objects": report.objects,
        "routes": report.routes,
    }


def _tell(report: Report) -> None:
    marks = {True: "ok", False: "FAIL", None: "-"}
    tell_table(("", "check", "finding"), [(marks[ok], name, finding) for name, ok, finding in report.checks])
    for facet in report.facets:
        click.echo(f"{facet['name']}: {facet['summary']} On, for {facet['on_because']}.")
        for sentence in facet["obligations"]:
            click.echo(f"    {sentence}")
        for sentence in facet["non_obligations"]:
            click.echo(f"    Not promised: {sentence}")
    if report.objects:
        click.echo(f"\nobjects: {', '.join(report.objects)}")
        click.echo(f"routes: {', '.join(report.routes)}")
