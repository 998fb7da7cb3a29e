"""`python -m deedbox_conformance URL`: judge a node and say what was found.

The exit status is 0 for conformant, 1 for not conformant, 2 for a command that cannot be meant.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from deedbox_conformance import report, suite, wire
from deedbox_conformance.clause import Clause
from deedbox_conformance.client import Client, Trust
from deedbox_conformance.peer import Peer
from deedbox_conformance.probe import Probe

_EXAMPLE = """\
example, a node in development and the judge as its peer:
  deedbox conformance https://alpha.test --as judge@beta.test --listen 127.0.0.1:8444 --cert beta.pem --key beta.key \\
      --ca authority.pem --resolve alpha.test=127.0.0.1:8443 --owner-key env:OWNER_KEY
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deedbox conformance",
        description="Judge a node by the clauses of OIP 1.2.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("url", nargs="?", help="the node, such as https://node.example")
    add(
        "--as",
        dest="agent",
        type=_agent,
        metavar="AGENT@DOMAIN",
        help="who the judge is as a peer; the node must resolve DOMAIN",
    )
    add("--listen", type=_address, metavar="HOST:PORT", help="where the judge serves that domain")
    add("--cert", type=Path, help="certificate chain for it (PEM); without one, end TLS in front of it yourself")
    add("--key", type=Path, help="its private key (PEM)")
    add("--owner-key", type=_secret, metavar="FILE|env:NAME", help="the node owner's key, to mint and revoke")
    add("--token", type=_secret, metavar="FILE|env:NAME", help="a token row:NOW bound to AGENT@DOMAIN, three uses left")
    add("--ca", type=Path, metavar="FILE", help="believe this authority (PEM) instead of the system's")
    add("--resolve", type=_resolution, action="append", default=[], metavar="NAME=IP:PORT", help="reach NAME there")
    add("--profile", choices=("wire", "node"), default="node", help="wire: only what any implementation must do")
    add("--requirements", default=suite.LATEST, metavar="VERSION", help="the frozen list to judge by")
    add("--only", action="append", default=[], metavar="PREFIX", help="only clauses whose id starts so")
    add("--patience", type=float, default=90.0, metavar="S", help="longest wait for a limit or a cache (default 90)")
    add("--timeout", type=float, default=30.0, metavar="S", help="longest wait for an answer (default 30)")
    add("--format", choices=("text", "json", "markdown"), default="text")
    add("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    add("--list", action="store_true", help="print the clauses and stop")
    return parser


def _agent(text: str) -> str:
    return Peer(text).agent


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port)


def _resolution(text: str) -> tuple[str, tuple[str, int]]:
    name, _, address = text.partition("=")
    return name.lower(), _address(address)


def _secret(source: str) -> str:
    """From a file or a variable, never from the command line, which others can read."""
    value = os.environ.get(source[4:], "") if source.startswith("env:") else Path(source).read_text("utf-8")
    if not value.strip():
        raise ValueError("the secret is empty")
    return value.strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = _parser()
    try:
        chosen = parser.parse_args(argv)
        required = suite.required(chosen.requirements)
    except OSError as problem:
        parser.error(str(problem))
    except LookupError as problem:
        parser.error(str(problem.args[0]))
    clauses = suite.select(suite.load_clauses(), required.ids(chosen.profile), chosen.only)
    if chosen.list:
        print(report.render_markdown(clauses))
        return 0
    _check(parser, chosen, clauses)
    try:
        found = asyncio.run(_judge(chosen, clauses))
    except OSError as problem:  # our own address or certificate; the node's silence is a finding
        parser.error(str(problem))
    rendered = {"text": lambda: found.verdict, "json": found.to_json, "markdown": found.to_markdown}[chosen.format]()
    print(rendered)
    return 0 if found.conformant else 1


def _check(parser: argparse.ArgumentParser, chosen: argparse.Namespace, clauses: Sequence[object]) -> None:
    """Refuse, with exit status 2, what cannot be meant."""
    if not chosen.url:
        parser.error("the URL of a node is needed")
    if not clauses:
        parser.error("no clause has such an id")
    if (chosen.agent is None) != (chosen.listen is None):
        parser.error("--as and --listen go together")
    if (chosen.cert is None) != (chosen.key is None):
        parser.error("--cert and --key go together")
    for path in (chosen.ca, chosen.cert, chosen.key):
        if path is not None and not path.is_file():
            parser.error(f"there is no file {path}")


async def _judge(chosen: argparse.Namespace, clauses: Sequence[Clause]) -> report.Report:
    client = Client(Trust(chosen.ca, dict(chosen.resolve)), timeout=chosen.timeout)
    peer = Peer(chosen.agent) if chosen.agent else None
    probe = Probe(
        chosen.url,
        client,
        peer=peer,
        owner_key=chosen.owner_key,
        token=chosen.token,
        patience=chosen.patience,
    )
    tell = (lambda result: print(report.line(result), flush=True)) if chosen.format == "text" else None
    ran_at = wire.now_ms()
    try:
        if peer is not None:
            host, port = chosen.listen
            await peer.start(host, port, _tls(chosen))
        results = await suite.judge(probe, clauses, tell)
    finally:
        if peer is not None:
            await peer.close()
        await client.close()
    return report.Report(probe.base, chosen.requirements, chosen.profile, ran_at, results)


def _tls(chosen: argparse.Namespace) -> ssl.SSLContext | None:
    if chosen.cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chosen.cert, chosen.key)
    return context


if __name__ == "__main__":
    sys.exit(main())
