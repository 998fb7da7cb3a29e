"""`deedbox mint`, `revoke`, `explain`: the owner's hand on capabilities, beside the running node or without it."""

from __future__ import annotations

import hashlib
from typing import Any

import rich_click as click

from deedbox.cli.settings import settings_of
from deedbox.cli.telling import Told, config_option, json_option, tell_json, tell_table

MINT, REVOKE, EXPLAIN = "CAPABILITY_MINT", "CAPABILITY_REVOKE", "CAPABILITY_EXPLAIN"
LIFE, MOST_USES, LARGEST_BODY = (60, 604_800), 999_999, 1_000_000
"""What the facet would clamp to in silence (OIP 1.2 §14.5)."""
SHOWN = ("fingerprint", "scope", "audience", "max_uses", "expires_at", "purpose", "risk_ceiling", "contract_hash")


def _scope(_: click.Context, __: click.Parameter, given: str) -> str:
    """On the wire a word that is no scope means ``read`` (OIP 1.2 §14.5); a slip of the owner's must not open that."""
    if given not in ("read", "act") and not given.startswith(("row:", "rows:", "pfx:")):
        raise click.BadParameter("a scope is read, act, row:KEY, rows:KEY,KEY or pfx:PREFIX")
    return given


@click.command(cls=Told, example="deedbox mint row:UPPER --audience node@peer.example --uses 3 --ttl 3600")
@click.argument("scope", callback=_scope)
@click.option("--audience", metavar="AGENT|DOMAIN", help="Who alone may use it, in a signed message.")
@click.option(
    "--uses", type=click.IntRange(0, MOST_USES), default=1, show_default=True, help="How often; 0 has no end."
)
@click.option("--ttl", type=click.IntRange(*LIFE), default=86_400, show_default=True, help="Seconds it lives.")
@click.option("--purpose", default="", help="What it is for; told to its holder.")
@click.option("--actor", default="", help="Who is meant to hold it.")
@click.option("--risk-ceiling", type=click.Choice(["low", "high"]), default="low", show_default=True)
@click.option("--body-fixed", default="", metavar="TEXT", help="The only arguments it may be used with.")
@click.option("--max-body-bytes", type=click.IntRange(1, LARGEST_BODY), help="The most bytes of arguments.")
@click.option("--owner-gate", is_flag=True, help="It may be explained, but only the owner runs it.")
@click.option("--unlimited", is_flag=True, help="Needed to mint scope act without an end of uses.")
@config_option
@json_option
def mint(scope: str, config: str | None, as_json: bool, audience: str | None, **terms: Any) -> None:
    """Mint a capability, and show its token this once.

    SCOPE is read, act, row:KEY, rows:KEY,KEY or pfx:PREFIX.
    """
    given = {name: value for name, value in terms.items() if value not in ("", None, False)}
    told = _asked(config, MINT, {"scope": scope, "aud": audience or "", **given})
    if as_json:
        tell_json(told)
        return
    minted = told["value"]
    rows = [(name, str(minted[name])) for name in SHOWN if minted.get(name) not in (None, "")]
    tell_table(("capability", ""), rows)
    click.echo(f"The token, told this once: {minted['share_token']}")


@click.command(cls=Told, example="deedbox revoke cap_0123456789abcdef")
@click.argument("capability")
@config_option
@json_option
def revoke(capability: str, config: str | None, as_json: bool) -> None:
    """Revoke a capability and everything narrowed from it; CAPABILITY is its fingerprint, or the token itself."""
    told = _asked(config, REVOKE, {"fingerprint": fingerprint(capability)})
    if as_json:
        tell_json(told)
        return
    ended = told["value"]
    when = "was revoked before" if ended["was_already_revoked"] else "is revoked"
    click.echo(f"{ended['fingerprint']} {when} ({ended['revoked_count']} ended now)")


@click.command(cls=Told, example="deedbox explain cap_0123456789abcdef --json")
@click.argument("capability")
@config_option
@json_option
def explain(capability: str, config: str | None, as_json: bool) -> None:
    """What a capability can still do, and why not more; CAPABILITY is its fingerprint, or the token itself."""
    told = _asked(config, EXPLAIN, {"fingerprint": fingerprint(capability)})
    if as_json:
        tell_json(told)
        return
    found = told["value"]
    click.echo("valid" if found["valid"] else f"not valid: {found['reason']}")
    told_of = {name: _text(value) for name, value in found["capability"].items() if value not in (None, "")}
    tell_table(("capability", ""), list(told_of.items()))


def fingerprint(capability: str) -> str:
    """A token's fingerprint, so that the token itself goes nowhere (OIP 1.2 §14.1); a fingerprint as it is."""
    if capability.startswith("cap_"):
        return capability
    return f"cap_{hashlib.sha256(capability.encode()).hexdigest()[:16]}"


def _asked(config: str | None, object_key: str, arguments: dict[str, Any]) -> dict[str, Any]:
    from deedbox.cli.opening import ask

    return ask(settings_of(config), object_key, arguments, facet="capabilities")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_text(each)}" for name, each in value.items() if each is not None)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
