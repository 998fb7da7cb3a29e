"""Everything a plugin may contribute. Hooks declare values, once, at assembly; the kernel runs them.

All hooks are synchronous, take no arguments (the plugin instance has its kernel) and yield values. None of them is
called while a message is being handled. Two plugins contributing the same thing is an error and the node does not
start; of policies, observers and services all count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping

    import click

    from deedbox.catalog import Object
    from deedbox.identity.principal import Principal
    from deedbox.intent import Intent, Operation, Proof, Verdict
    from deedbox.ledger.receipt import Receipt
    from deedbox.node import Node
    from deedbox.storage.group import Ask
    from deedbox.storage.unit import Unit

hookspec = pluggy.HookspecMarker("deedbox")

Service = Callable[["Node"], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class MessageKind:
    """A kind of envelope: its word on the wire, the object it asks for, whether it opens a request."""

    name: str
    object_key: str | None
    request: bool


@dataclass(frozen=True)
class Document:
    """A resource under ``/.well-known/``; rendered when asked, kept for ``max_age`` seconds by the publisher.

    ``version`` is asked at each request, so it only looks: another value than before renders anew at once.
    """

    name: str
    media_type: str
    render: Callable[[Node], Awaitable[bytes]]
    max_age: int = 300
    version: Callable[[Node], object] = lambda node: None


class Authenticator(Protocol):
    """Believes one class of credential."""

    credential: type

    def present(self, headers: Mapping[str, str]) -> Any | None:
        """The credential a request carries in its headers (names in lower case), or nothing."""

    async def prepare(self, node: Node, intent: Intent) -> Proof:
        """Prove, on the loop, before the database: fetch keys, check signatures, open bodies."""

    def believe(self, unit: Unit, intent: Intent, proof: Proof) -> Principal:
        """Known, suspended, rate, time, proof, in the surface's order of answers; raises a refusal."""


class Policy(Protocol):
    """Judges every operation; reads and never writes.

    ``name`` goes on its verdicts, as their ``policy``: of equal verdicts the first by that name is told.
    """

    name: str

    def judge(self, unit: Unit, operation: Operation) -> Verdict | None:
        """``Allow``, ``Hold``, ``Deny``, or nothing if it has no opinion; whatever it raises is a denial.

        ``operation.object`` is nothing where an envelope named an object that is not offered.
        """


@runtime_checkable
class AnnouncingPolicy(Policy, Protocol):
    """A policy that names the rows it will read, so that a whole group asks for them in one statement a table."""

    def facts(self, intent: Intent) -> Iterable[Ask]:
        """The rows an intent will need, as pairs of a ``Rows`` and a key; called on the loop, after *prepare*.

        Nothing in the intent is believed yet, and the same rows can be read without being announced: announcing
        only saves a statement.
        """


class Scorer(Protocol):
    """Turns evidence into measures; pure."""

    name: str

    def score(self, evidence: Iterable[Mapping[str, Any]], now: int) -> Mapping[str, Any]: ...


class Transport(Protocol):
    """A way to deliver what the outbox holds."""

    schemes: tuple[str, ...]

    async def deliver(self, node: Node, item: Any) -> Any:
        """Try once; the attempt's result, or a refusal that says whether trying again makes sense."""


class Observer(Protocol):
    """Is told of every receipt whose operation it names, in the receipt's own unit.

    ``transitions``: object keys it wants, or nothing for all. ``changes_rows``: it uses ``unit.change`` or
    ``unit.session``, and so is given a savepoint of its own.
    """

    name: str
    transitions: frozenset[str] | None
    changes_rows: bool

    def observe(self, unit: Unit, receipt: Receipt) -> None:
        """``receipt.operation`` and ``receipt.outcome`` say of what it is the receipt."""


@dataclass(frozen=True)
class Job:
    """A kind of durable work: run at least once, so idempotent by its key.

    ``every`` is a schedule in milliseconds; ``lease`` how long a worker may be silent; ``attempts`` the most tries.
    ``delay`` gives the wait before a try, in milliseconds, from the number of tries so far; nothing means give up.
    """

    kind: str
    run: Callable[[Node, Mapping[str, Any]], Awaitable[None]]
    every: int | None = None
    lease: int = 60_000
    delay: Callable[[int], int | None] | None = None


@dataclass(frozen=True)
class Port:
    """A protocol of ``ports.py`` and the object that satisfies it."""

    protocol: type
    provider: Any


@dataclass(frozen=True)
class Check:
    """What ``doctor`` looks at: a finding is a sentence, no finding is health."""

    id: str
    looks_at: str
    remedy: str
    look: Callable[[Node], Awaitable[str | None]]


@dataclass(frozen=True)
class Page:
    """An owner's page."""

    title: str
    path: str


@hookspec
def deedbox_objects() -> Iterable[Object[Any]]:
    """Things this node can be asked to do.

    Each is offered once and can be asked for through every subscribed surface. No two facets offer the same key.
    """
    return ()


@hookspec
def deedbox_message_kinds() -> Iterable[MessageKind]:
    """Kinds of envelope the inbox takes, and the object each asks for."""
    return ()


@hookspec
def deedbox_routes() -> Iterable[Any]:
    """Litestar handlers or controllers.

    A surface parses its wire format, awaits ``node.govern(intent)`` and phrases the reply; it decides nothing. The
    request's scope holds the node as ``scope["node"]`` and the request's id as ``scope["request_id"]``. A plain
    ``@asgi`` handler of an exact path is called without the framework in between, and checks the method itself.
    """
    return ()


@hookspec
def deedbox_documents() -> Iterable[Document]:
    """Resources under ``/.well-known/``, served by the facet ``wellknown``; public, and rendered once for everybody."""
    return ()


@hookspec
def deedbox_authenticators() -> Iterable[Authenticator]:
    """Who believes which class of credential; step 2 of the road. One authenticator a class.

    ``present`` finds the credential in a request's headers, ``prepare`` proves it before the database is asked,
    ``believe`` judges it in the unit.
    """
    return ()


@hookspec
def deedbox_policies() -> Iterable[Policy]:
    """Judges of every operation; step 5 of the road.

    All of them judge, in no promised order: a denial beats a hold, a hold beats an allowance, and if none speaks
    the answer is no. Judges read the deciding unit and never write; what an allowance costs rides on the verdict. An
    ``AnnouncingPolicy`` also names the rows it will read.
    """
    return ()


@hookspec
def deedbox_scorers() -> Iterable[Scorer]:
    """Ways to turn evidence into measures; settings choose."""
    return ()


@hookspec
def deedbox_transports() -> Iterable[Transport]:
    """Ways to deliver an envelope, by the URI scheme of the recipient's inbox; tried by the outbox."""
    return ()


@hookspec
def deedbox_observers() -> Iterable[Observer]:
    """Who is told of receipts; step 7 of the road. All observe.

    An observer writes in the unit that wrote the receipt, so both are kept or neither. One that fails is logged, its
    notes are dropped, and the receipt stands.
    """
    return ()


@hookspec
def deedbox_jobs() -> Iterable[Job]:
    """Kinds of durable work for the job table: run at least once, under a lease, by whichever process is free."""
    return ()


@hookspec
def deedbox_services() -> Iterable[Service]:
    """What should be running while the node serves: a listener, a queue, a clock.

    Entered in the order facets were subscribed, left in reverse.
    """
    return ()


@hookspec
def deedbox_ports() -> Iterable[Port]:
    """Needs of other facets this one satisfies, such as ``Directory``; asked for as ``node.port(Directory)``."""
    return ()


@hookspec
def deedbox_checks() -> Iterable[Check]:
    """What ``deedbox doctor`` should look at."""
    return ()


@hookspec
def deedbox_commands() -> Iterable[click.Command]:
    """Commands for the command line.

    A static method, unlike the others: a command is looked up by name with no node open, and opens what it needs.
    """
    return ()


@hookspec
def deedbox_pages() -> Iterable[Page]:
    """Pages for the owner's console."""
    return ()
