"""`deedbox send`: a signed message in the owner's name, and the reply proven or not."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

import rich_click as click

from deedbox.cli.settings import settings_of
from deedbox.cli.telling import Told, config_option, json_option, tell_json
from deedbox.refusals import Refusal

SEND = "SEND"
KINDS = ("query", "propose", "invoke", "result", "event", "cancel", "error")


@click.command(cls=Told, example='deedbox send node@peer.example query --text "Are you there?"')
@click.argument("to")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--text", help="The body's text.")
@click.option("--body", metavar="JSON", help="The whole body, an object.")
@click.option("--key", help="With invoke: the object to run.")
@click.option("--args", help="With invoke: its arguments.")
@click.option("--capability", metavar="FILE|env:NAME", help="Where the token to use is kept; - is standard input.")
@click.option("--encrypt", is_flag=True, help="Seal the body to the recipient's published key.")
@click.option("--conversation", metavar="ID", help="The conversation it belongs to; a new one if not given.")
@click.option("--in-reply-to", metavar="MSG", help="The message it answers.")
@click.option("--from", "sender", metavar="AGENT", help="Which of this node's agents speaks.")
@config_option
@json_option
@click.pass_context
def send(
    ctx: click.RichContext,
    /,
    to: str,
    kind: str,
    text: str | None,
    body: str | None,
    key: str | None,
    args: str | None,
    capability: str | None,
    config: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Send a signed message of KIND to the agent TO (name@domain), and show the verified reply.

    What can't be delivered now stays in the outbox and is tried again for five days. Ends with status 1 unless a
    proven reply came back.
    """
    from deedbox.cli.opening import ask

    arguments = {"to": to, "kind": kind, "body": body_of(kind, text, body, key, args)}
    arguments |= {name: value for name, value in how.items() if value}
    if capability:
        arguments["capability"] = token_from(capability)
    told = ask(settings_of(config), SEND, arguments, facet="https")
    sent = told["value"]
    tell_json(told) if as_json else _tell(sent)
    ctx.exit(0 if sent["state"] == "delivered" and sent["response_verified"] else 1)


def body_of(kind: str, text: str | None, body: str | None, key: str | None, args: str | None) -> dict[str, Any]:
    """The body the options stand for."""
    run = key is not None or args is not None
    if (text is not None) + (body is not None) + run > 1:
        raise click.UsageError("say the body once: --text, or --body, or for an invoke --key and --args")
    if run and kind != "invoke":
        raise click.UsageError("--key and --args are for an invoke")
    if body is not None:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise click.BadParameter("a body is a JSON object", param_hint="--body")
        return found
    if kind == "invoke":
        if not key:
            raise click.UsageError("an invoke names its object: --key UPPER")
        return {"key": key, "args": args or ""}
    return {"text": text} if text is not None else {}


def token_from(place: str) -> str:
    """A token from a file, the environment or standard input; never from the command line, which others can read."""
    if place.startswith("sh."):
        raise click.UsageError("the command line is read by others: put the token in a file, or in env:NAME")
    if place.startswith("env:"):
        found = os.environ.get(place[4:], "")
    else:
        try:
            with click.open_file(place) as file:
                found = file.read()
        except OSError as error:
            raise Refusal("no_token", 404, f"{place}: {error.strerror}") from None
    if not found.strip():
        raise Refusal("no_token", 404, f"there is no token at {place}")
    return found.strip()


def _instant(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).isoformat()


def _tell(sent: dict[str, Any]) -> None:
    click.echo(f"{sent['message_id']}  {sent['kind']} to {sent['recipient']}: {sent['state']}")
    click.echo(f"  conversation {sent['conversation']}")
    click.echo(f"  body sha256  {sent['body_sha256']}")
    if sent["detail"]:
        click.echo(f"  {sent['detail']}")
    if sent["next_at"] is not None:
        click.echo(f"  tried again while the node serves, until {_instant(sent['not_after'])}")
    if sent["response_id"] is None:
        return
    proven = "verified" if sent["response_verified"] else "NOT verified"
    click.echo(f"{sent['response_id']}  {sent['response_kind']}, {proven}")
    if sent["response_verified"]:
        click.echo(json.dumps(sent["response_body"], indent=2, ensure_ascii=False))
