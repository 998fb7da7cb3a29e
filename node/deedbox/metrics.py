"""A few counters, in this node's own registry, in the Prometheus text form."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    """What is counted; two nodes in a process never share a registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "deedbox_requests", "Requests by surface and status.", ("surface", "status"), registry=self.registry
        )
        self.outcomes = Counter(
            "deedbox_outcomes", "Ends of askings by surface and how.", ("surface", "ended"), registry=self.registry
        )
        self.deliveries = Counter(
            "deedbox_deliveries", "Delivery attempts by transport and end.", ("scheme", "ended"), registry=self.registry
        )
        self.entries = Gauge("deedbox_ledger_entries", "Entries in the ledger.", registry=self.registry)

        self._ends: dict[tuple[str, str], Counter] = {}

        self._statuses: dict[int, Counter] = {}

    def answered(self, status: int) -> None:
        """Count one HTTP answer."""
        counter = self._statuses.get(status)
        if counter is None:
            counter = self._statuses[status] = self.requests.labels("http", str(status))
        counter.inc()

    def ended(self, surface: str, ended: str) -> None:
        """Count one end of an asking."""
        counter = self._ends.get((surface, ended))
        if counter is None:
            counter = self._ends[surface, ended] = self.outcomes.labels(surface, ended)
        counter.inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
