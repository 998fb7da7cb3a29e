"""What the tests of the road share: a plugin of what a test gives it, credentials, and what the ledger then says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from deedbox import (
    Allow,
    Deny,
    Effect,
    Facet,
    Hold,
    Inside,
    Intent,
    Node,
    Object,
    Once,
    Operation,
    Outside,
    Plugin,
    Principal,
    Proof,
    Receipt,
    Refusal,
    Reply,
    Text,
    Unit,
    hookimpl,
)
from deedbox.ledger.leaf import parse_header
from deedbox.web import JsonPhrasing

PHRASING = JsonPhrasing()


@dataclass(frozen=True, slots=True)
class Badge:
    """A credential of these tests; one that is not ``good`` proves nobody."""

    name: str
    good: bool = True
    recognised: bool = True


class BadgeAuthenticator:
    credential = Badge

    def present(self, headers: Mapping[str, str]) -> None:
        """Never found in a request."""

    async def prepare(self, node: Node, intent: Intent) -> Proof:
        badge = intent.credential
        if not badge.good:
            return Proof(refusal=Refusal("bad_badge", 401, "this badge is forged"))
        return Proof(Principal(badge.name, "peer", recognised=badge.recognised, verified=badge.recognised))

    def believe(self, unit: Unit, intent: Intent, proof: Proof) -> Principal:
        if proof.refusal is not None:
            raise proof.refusal
        return proof.principal


class Judge:
    """A policy that says what it is told to say, by the object's key."""

    def __init__(self, name: str, verdict: Callable[[Operation], Any]) -> None:
        self.name = name
        self._verdict = verdict

    def judge(self, unit: Unit, operation: Operation) -> Any:
        return self._verdict(operation)


class Watcher:
    """An observer that does what it is told."""

    transitions = None

    def __init__(self, watch: Callable[[Unit, Receipt], Any], *, changes_rows: bool = False) -> None:
        self.name = "watcher"
        self.changes_rows = changes_rows
        self._watch = watch

    def observe(self, unit: Unit, receipt: Receipt) -> None:
        self._watch(unit, receipt)


def by_key(operation: Operation) -> Allow | Deny | Hold | None:
    """Denies NO_…, holds HELD…, allows the rest."""
    key = operation.intent.object_key
    if key.startswith("NO_"):
        return Deny("denied", 403, "as told", policy="by-key")
    if key.startswith("HELD"):
        return Hold("ask_first", "ask the owner", policy="by-key")
    return Allow(policy="by-key") if operation.principal.kind == "peer" else None


def echo(unit: Unit, given: Text, operation: Operation) -> str:
    return given.text


def an_object(key: str, call: Any = echo, effect: Effect = Effect.EXECUTION, **more: Any) -> Object[Any]:
    runner = call if isinstance(call, Inside | Outside) else Inside(call)
    return Object(key=key, summary=key, effect=effect, arguments=Text, runner=runner, **more)


def toys(
    *objects: Object[Any],
    policies: Iterable[Any] = (Judge("by-key", by_key),),
    observers: Iterable[Any] = (),
) -> type[Plugin]:
    """A plugin class with these contributions."""

    class Toys(Plugin):
        facet = Facet(name="toys", summary="Whatever a test needs.")

        @hookimpl
        def deedbox_objects(self) -> Iterable[Object[Any]]:
            return objects

        @hookimpl
        def deedbox_authenticators(self) -> Iterable[Any]:
            yield BadgeAuthenticator()

        @hookimpl
        def deedbox_policies(self) -> Iterable[Any]:
            return policies

        @hookimpl
        def deedbox_observers(self) -> Iterable[Any]:
            return observers

    return Toys


ALICE = Badge("alice")


def intent(node: Node, key: str, text: str = "", *, credential: Any = ALICE, **more: Any) -> Intent:
    return Intent(
        surface="test",
        at=node.kernel.clock.now(),
        object_key=key,
        arguments=text,
        phrasing=PHRASING,
        credential=credential,
        **more,
    )


def spending(node: Node, key: str, id_: str, *, digest: str = "same", life: int = 60_000, **more: Any) -> Intent:
    """An asking that spends an id."""
    once = Once(f"test/{id_}", digest, node.kernel.clock.now() + life)
    return intent(node, key, once=once, **more)


async def ask(node: Node, key: str, text: str = "", **more: Any) -> Reply:
    return await node.govern(intent(node, key, text, **more))


@dataclass(frozen=True, slots=True)
class Written:
    """One line of the ledger: ``entry`` or ``event``, its kind, and what it says."""

    where: str
    kind: str
    said: Mapping[str, Any]


async def written(node: Node) -> list[Written]:
    """All entries in order, then all events."""
    rows = await node.database.read(lambda reader: reader.all(_ENTRIES))
    events = await node.database.read(lambda reader: reader.all("select event from ledger_event order by id"))
    return [
        *(Written("entry", parse_header(bytes(row.header)).kind, orjson.loads(bytes(row.payload))) for row in rows),
        *(Written("event", said["ended"], said) for row in events for said in [orjson.loads(bytes(row.event))]),
    ]


_ENTRIES = "select e.header, p.payload from ledger_entry e join ledger_payload p on p.seq = e.seq order by e.seq"


async def rows_of(node: Node, table: str) -> list[Any]:
    return await node.database.read(lambda reader: reader.all(f"select * from {table}"))


async def settled(*waiting: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*waiting, return_exceptions=True)
