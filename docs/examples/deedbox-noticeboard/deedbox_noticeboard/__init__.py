"""A notice board: whoever holds a capability pins a notice to it, and anybody reads what is pinned."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field
from sqlmodel import Field as Column

from deedbox import Arguments, Effect, Facet, Inside, Object, Operation, Plugin, Rows, Stated, Table, Unit, hookimpl


class Notice(Table, table=True):
    """One notice: when it was pinned (milliseconds), by whom, and what it says."""

    id: int | None = Column(default=None, primary_key=True)
    at: int
    who: str
    text: str


NOTICES = Rows(Notice, only=("at", "who", "text"))


class Pinning(Arguments):
    """What to pin."""

    text: str = Field(min_length=1, max_length=500)


class Reading(Arguments):
    """How many to read, newest first."""

    most: int = Field(20, ge=1, le=100)


class Noticeboard(Plugin):
    """The facet ``noticeboard``."""

    facet = Facet(
        name="noticeboard",
        summary="A board on which holders of a capability pin notices for everybody.",
        obligations=("A notice says who pinned it, as the node believed them.",),
        non_obligations=("Nobody answers for what a notice says.",),
        migrations=Path(__file__).parent / "migrations",
    )

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        yield Object(
            key="NOTICE_PIN",
            summary="Pin a notice to the board.",
            effect=Effect.EXECUTION,
            arguments=Pinning,
            runner=Inside(pin),
            safe=False,
            idempotent=False,
            examples=('[NOTICE_PIN]{"text": "The library is closed on Friday."}[/NOTICE_PIN]',),
            semantics={"effects": ("a notice is on the board",)},
        )
        yield Object(
            key="NOTICES",
            summary="The newest notices on the board.",
            effect=Effect.DISCLOSURE,
            arguments=Reading,
            runner=Inside(read),
            public=True,
            safe=True,
            idempotent=True,
        )


def pin(unit: Unit, asked: Pinning, operation: Operation) -> Stated:
    """Keep the notice; the ledger says how long it is, and with its hashes what it was."""
    unit.note(NOTICES, (unit.now, operation.principal.id, asked.text))
    return Stated({"pinned": True, "by": operation.principal.id}, {"characters": len(asked.text)})


def read(unit: Unit, asked: Reading, operation: Operation) -> dict[str, Any]:
    """What was committed before this group: a notice that is being pinned at this moment shows in the next."""
    rows = unit.all("select at, who, text from noticeboard_notice order by id desc limit :most", most=asked.most)
    return {"notices": [{"at": row.at, "who": row.who, "text": row.text} for row in rows]}
