"""What is answered without the road, each with its reason (architecture §3, decision 33).

Data: ``tests/roads/test_no_ungoverned_path.py`` holds it against the routes that are mounted. A route that is not
named here writes at least one receipt, whatever it is asked.
"""

from __future__ import annotations

from typing import NamedTuple


class OpenRoute(NamedTuple):
    """A ``GET`` that takes nothing in, tells everybody the same and is counted in a metric only."""

    path: str
    reason: str


OPEN_ROUTES = (
    OpenRoute("/health/live", "says that the process answers, and nothing else"),
    OpenRoute("/health/ready", "says that the database answers, and which facets are on, as the well-known does"),
    OpenRoute("/ready", "the same for those who look there"),
    OpenRoute("/health", "the same for those who look there"),
    OpenRoute("/metrics", "sums; no name, no address, no id is a label"),
    OpenRoute("/.well-known", "documents made to be published: cached bytes, and a limit per address"),
    OpenRoute("/oip/inbox", "how to write to us; the same words for everybody"),
    OpenRoute("/api/dispatch", "asked without a question, how to ask one; the same words for everybody"),
)

OPEN_EVERYWHERE = {
    "OPTIONS": "a browser asks which methods there are",
    "HEAD": "the headers of a GET, for caches; a route may still take it down the road",
    "405": "a method that a route does not offer, and says so",
    "404": "a path that no route has",
    "prefetch": "fetched ahead of a person who has asked for nothing yet",
}
"""What never reaches the road on any route: a method, the answer that says no, or the kind of caller."""
