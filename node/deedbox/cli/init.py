"""`deedbox init`: the first run of a node: its settings, its keys, its schema, its owner, its DNS records."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from deedbox.cli.settings import FILE
from deedbox.cli.telling import Told, json_option, tell_json, tell_table
from deedbox.refusals import Fault, Refusal

if TYPE_CHECKING:
    from deedbox.settings import Settings

FACETS = {
    "wellknown": "being found and finding: /.well-known/oip.json, the directory of other domains",
    "inbox": "the signed inbox, conversations, the public side of the ledger",
    "capabilities": "tokens of authority: mint, revoke, explain, and the judge of every use",
    "dispatch": "the door for a token's holder: /api/dispatch",
    "https": "sending: the outbox's transport",
    "basics": "four objects to try things with: NOW, ECHO, UPPER, SHA256_LOWER",
}
COLUMNS = ("name", "type", "TTL", "value", "why", "needed")
TTL = "3600"


@dataclass(frozen=True, slots=True)
class Founded:
    """A node that is ready to serve; ``owner_key`` is nothing where there was one already."""

    settings: Settings
    folder: Path
    owner_key: str | None
    agents: dict[str, str]
    """Each agent with its key's thumbprint (RFC 7638)."""
    ledger_key: str
    """The ledger's verifier key (C2SP signed-note)."""


@click.command(cls=Told, example="deedbox init node.example --folder /var/lib/deedbox")
@click.argument("domain", required=False)
@click.option("--folder", default=".", show_default=True, type=click.Path(file_okay=False), help="Where it will live.")
@click.option("--development", type=click.Path(file_okay=False), metavar="DIR", help="What .test nodes here share.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="An agent it speaks for; the first is its own.")
@click.option("--upgrade", is_flag=True, help="Complete and upgrade the node that is in the folder.")
@json_option
def init(
    domain: str | None, folder: str, development: str | None, agents: tuple[str, ...], upgrade: bool, as_json: bool
) -> None:
    """Write the settings of a new node, make its keys and its database, and print what to publish in the DNS.

    Nothing that is there is overwritten. With --upgrade the schema is brought to this release, and whatever an
    interrupted first run left out is made.
    """
    place = Path(os.path.abspath(folder))
    if upgrade:
        if domain is not None:
            raise click.UsageError("with --upgrade the domain stands in the settings: leave it out")
        made = complete(place, level=logging.WARNING)
    elif domain is None:
        raise click.UsageError("name the domain the node will have, such as node.example")
    else:
        chosen = Path(os.path.abspath(development)) if development else None
        made = found(domain, place, development=chosen, agents=agents or ("node",), level=logging.WARNING)
    tell_json(_as_json(made)) if as_json else _tell(made, new=not upgrade)


def found(
    domain: str,
    folder: Path,
    *,
    development: Path | None = None,
    agents: tuple[str, ...] = ("node",),
    level: int = logging.ERROR,
) -> Founded:
    """Make a node in a folder that has none; what is logged below ``level`` is not told."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for taken in (folder / FILE, folder / "deedbox.db", folder / "keys"):
        if taken.exists():
            raise Refusal(
                "already_there",
                409,
                f"{taken} exists, and nothing is overwritten",
                next_step=f"deedbox init --upgrade --folder {folder} completes what is there",
                fault=Fault.OURS,
            )
    text = settings_text(domain, development, agents)
    _check(text)
    with os.fdopen(os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return complete(folder, level=level)


def _check(text: str) -> None:
    """A name or agent that the settings refuse is refused before anything is written."""
    import tomllib

    from deedbox.settings import NodeSection, checked

    checked(NodeSection, tomllib.loads(text)["node"], "node")


def complete(folder: Path, *, level: int = logging.ERROR) -> Founded:
    """Bring the node of a folder to this release: key folder, schema, keys, and an owner if it has none."""
    from deedbox import logs
    from deedbox.cli.opening import run
    from deedbox.govern.owner import FILE as OWNER
    from deedbox.govern.owner import make_owner_key
    from deedbox.node import facet_classes, schema_histories
    from deedbox.settings import load
    from deedbox.storage.database import sole_keeper
    from deedbox.storage.migrate import upgrade

    logs.configure("text", level)
    settings = load(folder / FILE)
    keys = settings.node.keys
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    with sole_keeper(settings.node.database):
        upgrade(settings.node.database, schema_histories(facet_classes(settings.facets, {})))
    agents, ledger_key = run(lambda: _made_keys(settings))
    owner_key = None if (keys / OWNER).exists() else make_owner_key(keys, os.urandom)
    return Founded(settings, folder, owner_key, agents, ledger_key)


async def _made_keys(settings: Settings) -> tuple[dict[str, str], str]:
    from deedbox.kernel import open_kernel
    from deedbox.ledger.checkpoint import VerifierKey

    kernel = await open_kernel(settings)
    try:
        now = kernel.clock.now()
        agents = {agent: kernel.agents.pair(agent, now).public.thumbprint for agent in kernel.agents.ids}
        return agents, str(VerifierKey(kernel.domain, kernel.agents.ledger.public.point))
    finally:
        await kernel.close()


def settings_text(domain: str, development: Path | None, agents: tuple[str, ...]) -> str:
    """The settings file of a new node, with comments."""
    names = ", ".join(map(_quoted, agents))
    lines = [
        f"# The settings of {domain}. `deedbox config check` says what is on and why.",
        "# Each key may be overridden by the environment: DEEDBOX_NODE__LISTEN=127.0.0.1:9000",
        "",
        "[node]",
        f"domain = {_quoted(domain)}  # what others find it by; it stands in every id and never changes",
        f"agents = [{names}]  # whom it speaks for; the first is its own voice",
        'database = "sqlite:///deedbox.db"  # or postgresql://user@host/name',
        'keys = "keys"  # a folder nobody else can read',
        'zone = "UTC"  # for the times in records',
        'log = "json"  # or "text"',
        *_reached(development),
        "",
        "# A facet is on when its table stands here; take one away and nothing of it is loaded, served or published.",
    ]
    for name, brings in FACETS.items():
        lines += [f"[facets.{name}]  # {brings}"]
    return "\n".join(lines) + "\n"


def _reached(development: Path | None) -> Iterator[str]:
    if development is None:
        yield 'listen = "127.0.0.1:8470"'
        yield ""
        yield "[node.tls]"
        yield 'mode = "proxy"  # a proxy speaks TLS in front of it; or "files" with certificate and key'
        return
    yield 'listen = "127.0.0.1:0"  # a free port; the development names say which'
    yield f"development = {_quoted(str(development))}  # names and a certificate authority for .test on this machine"
    yield ""
    yield "[node.tls]"
    yield 'mode = "development"'


def _quoted(text: str) -> str:
    """A TOML basic string."""
    import json

    return json.dumps(text, ensure_ascii=False)


def dns_records(settings: Settings) -> list[tuple[str, ...]]:
    """What to publish so that others find the node, by ``COLUMNS``; nothing in development."""
    if settings.node.development is not None:
        return []
    name = f"{settings.node.domain}."
    return [
        (
            name,
            "A",
            TTL,
            "<this machine's public IPv4 address>",
            "others fetch its keys and post to its inbox",
            "one of",
        ),
        (name, "AAAA", TTL, "<this machine's public IPv6 address>", "the same over IPv6", "one of"),
    ]


def _as_json(made: Founded) -> dict[str, Any]:
    return {
        "ok": True,
        "domain": made.settings.node.domain,
        "settings": str(made.folder / FILE),
        "owner_key": made.owner_key,
        "agents": made.agents,
        "ledger_key": made.ledger_key,
        "dns": [dict(zip(COLUMNS, row, strict=True)) for row in dns_records(made.settings)],
    }


def _tell(made: Founded, *, new: bool) -> None:
    click.echo(f"{made.settings.node.domain} {'is made' if new else 'is up to date'}: {made.folder / FILE}")
    tell_table(("agent", "key"), [*made.agents.items(), ("its ledger", made.ledger_key)])
    if made.owner_key:
        click.echo(f"The owner key, told this once: {made.owner_key}\n")
    records = dns_records(made.settings)
    if records and new:
        tell_table(COLUMNS, records, title="To publish in the DNS")
    if new:
        click.echo(f"Next: deedbox serve --config {made.folder / FILE}")
