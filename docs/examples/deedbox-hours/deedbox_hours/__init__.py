"""Opening hours: outside them nothing is executed for anybody but the owner; what is only read stays open."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time
from zoneinfo import ZoneInfo

from deedbox import Deny, Effect, Facet, Operation, Plugin, Policy, Section, Unit, hookimpl

ALWAYS_IN = ("owner", "node")
"""The kinds of principal that have a key to the door."""


class HoursSettings(Section):
    """Times of day in the node's zone; ``opens`` after ``closes`` means open over midnight."""

    opens: time = time(8)
    """The first moment at which things are executed."""
    closes: time = time(18)
    """The first moment at which they no longer are."""


class Hours(Plugin):
    """The facet ``hours``."""

    facet = Facet(
        name="hours",
        summary="Executes nothing outside opening hours.",
        obligations=("Outside the hours an execution is refused to everybody but the owner.",),
        non_obligations=("Disclosures are answered at any time.",),
        settings=HoursSettings,
    )

    @hookimpl
    def deedbox_policies(self) -> Iterable[Policy]:
        yield OpeningHours(self.settings, self.kernel.zone)


class OpeningHours:
    """Denies, and never allows: whoever may do a thing is for other policies to say."""

    name = "opening-hours"

    def __init__(self, hours: HoursSettings, zone: ZoneInfo) -> None:
        self._hours = hours
        self._zone = zone

    def judge(self, unit: Unit, operation: Operation) -> Deny | None:
        if operation.effect is not Effect.EXECUTION or operation.principal.kind in ALWAYS_IN:
            return None
        opens, closes = self._hours.opens, self._hours.closes
        if is_open(opens, closes, datetime.fromtimestamp(unit.now / 1000, self._zone).time()):
            return None
        return Deny(
            "closed",
            403,
            f"open from {opens:%H:%M} to {closes:%H:%M} {self._zone.key}",
            f"ask again after {opens:%H:%M}",
            policy=self.name,
        )


def is_open(opens: time, closes: time, now: time) -> bool:
    """Whether ``now`` lies in the hours; equal ends leave no hour open."""
    if opens <= closes:
        return opens <= now < closes
    return now >= opens or now < closes
