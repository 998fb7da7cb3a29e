"""A few counts of this node's own, told in the Prometheus text form (version 0.0.4) to whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Tally:
    """A counter with labels, kept as plain integers on the loop's thread."""

    def __init__(self, name: str, meaning: str, labels: tuple[str, ...]) -> None:
        self.name, self.meaning, self.labels = name, meaning, labels
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str) -> None:
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def items(self) -> list[tuple[tuple[str, ...], int]]:
        return list(self._counts.items())


class Metrics:
    """What is counted, a node by itself; it is made into samples when somebody reads it, and not before."""

    def __init__(self) -> None:
        self.requests = Tally("deedbox_requests", "Requests by surface and status.", ("surface", "status"))
        self.outcomes = Tally("deedbox_outcomes", "Ends of askings by surface and how.", ("surface", "ended"))
        self.deliveries = Tally("deedbox_deliveries", "Delivery attempts by transport and end.", ("scheme", "ended"))
        self.entries = 0

    def collect(self) -> Iterator[Metric]:
        """The samples, as a Prometheus collector gives them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for tally in (self.requests, self.outcomes, self.deliveries):
            family = CounterMetricFamily(tally.name, tally.meaning, labels=tally.labels)
            for labels, count in tally.items():
                family.add_metric(labels, count)
            yield family
        yield GaugeMetricFamily("deedbox_ledger_entries", "Entries in the ledger.", value=self.entries)

    def text(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)
