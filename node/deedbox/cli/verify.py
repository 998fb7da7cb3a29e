"""`deedbox verify`: is this ledger whole, in order, and as long as others saw it? Needs no node and no network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from deedbox.cli.telling import Told, config_option, json_option, tell_json
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.ledger.checkpoint import VerifierKey
    from deedbox.ledger.records import Source
    from deedbox.ledger.verify import Progress, Verdict, Witnessed

TOLD_EVERY = 16_384
FOREIGN = "unknown_signer"


@click.command(cls=Told, example="deedbox verify export.jsonl --key VKEY --checkpoint kept-by-a-peer.note")
@click.argument("ledger", required=False)
@config_option
@click.option("--origin", metavar="DOMAIN", help="Whose ledger it must be.")
@click.option("--key", "keys", multiple=True, metavar="VKEY", help="A key of the ledger, known from elsewhere.")
@click.option("--checkpoint", "notes", multiple=True, type=click.Path(exists=True), help="A signed head others kept.")
@click.option("--head", "heads", multiple=True, metavar="SIZE:ROOT", help="A head others kept, root in hexadecimal.")
@click.option("--witness", "witnesses", multiple=True, metavar="VKEY", help="Whose cosignature counts.")
@click.option("--needed", type=int, default=1, show_default=True, help="How many witnesses must have cosigned.")
@click.option("--thorough", is_flag=True, help="Also require canonical JSON of every payload (slow).")
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    ledger: str | None,
    config: str | None,
    origin: str | None,
    keys: tuple[str, ...],
    notes: tuple[str, ...],
    heads: tuple[str, ...],
    witnesses: tuple[str, ...],
    needed: int,
    thorough: bool,
    as_json: bool,
) -> None:
    """Verify a ledger offline: a node's database file, an export, or - for an export on standard input.

    Without LEDGER it is that of the settings. The first bad entry is named, and so is what was not checked: a ledger
    that agrees with itself may have been cut at its end, and only a head that others kept shows that. Ends with
    status 1 if anything is wrong, or if no --key that was given signed it.
    """
    from deedbox.ledger.checkpoint import VerifierKey, WitnessPolicy
    from deedbox.ledger.verify import Trust
    from deedbox.ledger.verify import verify as verify_source

    known = tuple(map(VerifierKey.parse, keys))
    policy = WitnessPolicy(tuple(map(VerifierKey.parse, witnesses)), needed) if witnesses else None
    with _opened(ledger, config) as (source, own_origin, own_keys):
        known = known or own_keys
        kept = (*map(_head, heads), *(_noted(note, known or source.keys) for note in notes))
        trust = Trust(origin or own_origin, known, policy, kept, payload_form=thorough)
        verdict = verify_source(source, trust, _progress())
    foreign = bool(keys) and verdict.good and verdict.counts.entries > 0 and not verdict.counts.checkpoints_signed
    if as_json:
        tell_json(verdict.as_json() | ({"ok": False, "error": FOREIGN} if foreign else {}))
    else:
        _tell(verdict)
        if foreign:
            raise Refusal(FOREIGN, 403, "no key that was given signed any head: anybody may have written this ledger")
    ctx.exit(0 if verdict.good and not foreign else 1)


@contextmanager
def _opened(path: str | None, config: str | None) -> Iterator[tuple[Source, str | None, tuple[VerifierKey, ...]]]:
    """The source, and whose it is and with which keys, where the settings say so."""
    from deedbox.cli import books

    if path is not None:
        with books.book(path) as source:
            yield source, None, ()
        return
    from deedbox.cli.settings import settings_of

    settings = settings_of(config)
    with books.own_book(settings) as source:
        yield source, settings.node.domain, books.own_keys(settings)


def _head(text: str) -> Witnessed:
    from deedbox.ledger.verify import Witnessed

    size, _, root = text.partition(":")
    try:
        return Witnessed(int(size), bytes.fromhex(root), "the head given")
    except ValueError:
        raise click.BadParameter("a head is written SIZE:ROOT, the root in hexadecimal") from None


def _noted(path: str, keys: tuple[VerifierKey, ...]) -> Witnessed:
    """A head that somebody kept as a signed checkpoint; one the ledger did not sign proves nothing against it."""
    from deedbox.ledger.checkpoint import SignedCheckpoint
    from deedbox.ledger.verify import Witnessed

    signed = SignedCheckpoint.parse(Path(path).read_bytes())
    if not signed.signers(keys):
        raise Refusal(FOREIGN, 403, f"{path}: no known key of the ledger signed it", next_step="give its --key")
    return Witnessed(signed.checkpoint.size, signed.checkpoint.root, Path(path).name)


def _progress() -> Progress | None:
    """A count on standard error, where a person is watching."""
    if not sys.stderr.isatty():
        return None
    told = 0

    def tell(size: int) -> None:
        nonlocal told
        if size - told >= TOLD_EVERY:
            told = size
            click.echo(f"\r{size:,} entries", nl=False, err=True)

    return tell


def _tell(verdict: Verdict) -> None:
    if sys.stderr.isatty():
        click.echo("\r", nl=False, err=True)
    click.echo(f"{verdict}")
    counts = verdict.counts
    click.echo(
        f"{counts.entries:,} entries, {counts.payloads:,} payloads, {counts.events:,} events in {counts.batches:,}"
        f" batches, {counts.checkpoints_signed:,} of {counts.checkpoints:,} checkpoints signed by the ledger's key"
    )
    if verdict.first_bad is not None:
        click.echo(f"the first bad entry is {verdict.first_bad}")
    for gap in verdict.not_checked:
        click.echo(f"  not checked: {gap}")
