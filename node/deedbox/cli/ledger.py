"""`deedbox ledger`: verify it, export it for others to verify, and prove that something stands in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import rich_click as click

from deedbox.cli.settings import settings_of
from deedbox.cli.telling import Told, config_option, json_option, tell_json
from deedbox.cli.verify import verify
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.ledger.proving import Proven
    from deedbox.storage.database import Reader


@click.group(cls=click.RichGroup, epilog="Example: deedbox ledger verify")
def ledger() -> None:
    """Verify, export and prove the ledger."""


ledger.add_command(verify)


@ledger.command(cls=Told, example="deedbox ledger export ledger.jsonl")
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True))
@config_option
@click.option("--without-payloads", is_flag=True, help="The chain and the tree alone: hashes, no contents.")
def export(file: str, config: str | None, without_payloads: bool) -> None:
    """Write the ledger as JSON Lines that anybody can verify; to standard output unless a new FILE is named."""
    from deedbox.cli.books import own_book, own_keys
    from deedbox.ledger.records import export_lines

    settings = settings_of(config)
    keys = own_keys(settings)
    with own_book(settings, payloads=not without_payloads) as source, _written(file) as out:
        for line in export_lines(settings.node.domain, keys, source.records()):
            out.write(line)


@contextmanager
def _written(file: str) -> Iterator[IO[str]]:
    """A new file for us alone, or standard output; what exists is not overwritten."""
    if file == "-":
        yield sys.stdout
        return
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Refusal("already_there", 409, f"{file} exists, and nothing is overwritten") from None
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        yield out


@ledger.command(cls=Told, example="deedbox ledger prove entry:12 > entry-12.proof")
@click.argument("receipt")
@config_option
@json_option
def prove(receipt: str, config: str | None, as_json: bool) -> None:
    """Prove that something stands in the ledger, under its newest signed head (C2SP tlog-proof).

    RECEIPT is what a receipt names: entry:12, event:3456, or the id of an invocation, inv_…
    """
    from deedbox.cli.books import own_keys, reading

    settings = settings_of(config)
    with reading(settings) as reader:
        proven = proven_of(reader, receipt)
    if not as_json:
        click.echo(str(proven.proof), nl=False)
        return
    keys = [str(key) for key in own_keys(settings)]
    tell_json({"origin": settings.node.domain, "keys": keys, **_as_json(proven)})


def proven_of(reader: Reader, receipt: str) -> Proven:
    """The proof of what a receipt names; a ``Refusal`` where it names nothing, or nothing that is signed yet."""
    from deedbox.ledger.proving import prove_entry, prove_event

    kind, _, number = receipt.partition(":")
    if receipt.startswith("inv_"):
        row = reader.one("select seq, event from ledger_invocation where id = :id", id=receipt)
        if row is None:
            raise Refusal("unknown_receipt", 404, "there is no such invocation")
        return prove_event(reader, row.event) if row.seq is None else prove_entry(reader, row.seq)
    if kind not in ("entry", "event") or not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise click.BadParameter("a receipt is named entry:12, event:3456 or inv_…")
    return prove_entry(reader, int(number)) if kind == "entry" else prove_event(reader, int(number))


def _as_json(proven: Proven) -> dict[str, Any]:
    header = proven.header.decode() or None
    return {"leaf": proven.leaf.hex(), "header": header, "proof": str(proven.proof)}


@ledger.command(cls=Told, example="deedbox ledger check entry-12.proof --leaf HEX --key VKEY")
@click.argument("proof", type=click.Path(exists=True, dir_okay=False))
@click.option("--leaf", required=True, metavar="HEX", help="The leaf or hash that the receipt gave.")
@click.option("--key", "keys", multiple=True, required=True, metavar="VKEY", help="A key of the ledger, as published.")
@json_option
def check(proof: str, leaf: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Check a proof that somebody gave you, against the ledger's published key; needs no node and no network."""
    from deedbox.ledger.checkpoint import VerifierKey
    from deedbox.ledger.proof import TlogProof, verify_event

    try:
        told, meant = TlogProof.parse(Path(proof).read_text("utf-8")), bytes.fromhex(leaf)
    except ValueError:
        raise click.BadParameter("a leaf is 64 hexadecimal digits, a proof is text") from None
    known = tuple(map(VerifierKey.parse, keys))
    origin = known[0].name
    judge = TlogProof.verify if told.extra is None else verify_event
    found = judge(told, meant, origin, known)
    if as_json:
        tell_json({"ok": True, "origin": found.origin, "size": found.size, "root": found.root.hex()})
    else:
        click.echo(f"it stands in the ledger of {found.origin}, among its first {found.size} entries")
