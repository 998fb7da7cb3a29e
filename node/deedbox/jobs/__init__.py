"""Durable work: decided in a unit, run at least once outside any transaction, under a lease (decision 18).

``enqueue`` is called in the unit that decides; ``working`` runs what is due while the node serves. A kind of work comes
from the hook ``deedbox_jobs``.
"""

from __future__ import annotations

from deedbox.jobs.table import Claimed, LeaseLost, claim_key, enqueue, prune
from deedbox.jobs.worker import Again, current_lease, perform, working

__all__ = [
    "Again",
    "Claimed",
    "LeaseLost",
    "claim_key",
    "current_lease",
    "enqueue",
    "perform",
    "prune",
    "working",
]
