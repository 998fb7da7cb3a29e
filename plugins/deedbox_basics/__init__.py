"""Four harmless objects to try a node with: NOW, ECHO, UPPER, SHA256_LOWER (OIP 1.2 §15.11)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from deedbox import Effect, Facet, Inside, Object, Operation, Plugin, Text, Unit, hookimpl
from deedbox.clock import server_law

PRECONDITIONS = ("the credential passes every gate",)
POSTCONDITIONS = ("a receipt records who asked, the hashes of input and output, and how it ended",)


class Basics(Plugin):
    """The facet ``basics``."""

    facet = Facet(
        name="basics",
        summary="Harmless objects: the clock, an echo, capitals, a hash.",
        obligations=(
            "Each is safe and idempotent, changes nothing, and runs only for the owner or under a capability.",
        ),
        non_obligations=("The clock is the node's own and is not synchronised by this facet.",),
    )

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        yield _object(
            "NOW",
            "The node's clock as a JSON string with now, today, time, zone and iso; the text is ignored.",
            self.now,
            effects=("none; reads the node's clock",),
            examples=("[NOW][/NOW]",),
        )
        yield _object(
            "ECHO",
            "The text, unchanged.",
            lambda unit, given, operation: given.text,
            effects=("none; gives the text back",),
            examples=("[ECHO]hello[/ECHO]",),
        )
        yield _object(
            "UPPER",
            "The text in capital letters.",
            lambda unit, given, operation: given.text.upper(),
            effects=("none; computes",),
            examples=("[UPPER]hello[/UPPER]",),
        )
        yield _object(
            "SHA256_LOWER",
            "The SHA-256 of the text's UTF-8, as 64 lower-case hexadecimal digits.",
            lambda unit, given, operation: hashlib.sha256(given.text.encode()).hexdigest(),
            effects=("none; computes",),
            examples=("[SHA256_LOWER]hello[/SHA256_LOWER]",),
        )

    def now(self, unit: Unit, given: Text, operation: Operation) -> str:
        """``{now, today, time, zone, iso}`` in the server-law family; nothing the caller sends has a part in it."""
        zone = self.kernel.zone
        moment = server_law(unit.now, zone)
        told = {"now": moment, "today": moment[:10], "time": moment[11:19], "zone": zone.key, "iso": moment}
        return orjson.dumps(told).decode()


def _object(
    key: str,
    summary: str,
    call: Callable[[Unit, Text, Operation], str],
    *,
    effects: tuple[str, ...],
    examples: tuple[str, ...],
) -> Object[Text]:
    return Object(
        key=key,
        summary=summary,
        effect=Effect.DISCLOSURE,
        arguments=Text,
        runner=Inside(call),
        category="core",
        safe=True,
        idempotent=True,
        examples=examples,
        semantics={"preconditions": PRECONDITIONS, "effects": effects, "postconditions": POSTCONDITIONS},
    )
