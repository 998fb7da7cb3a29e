"""What is to be sent: each message kept until it has arrived or is given up, and every attempt (decisions 14, 30).

A message is its (recipient, sender, id); what is retried is the message, not the bytes. ``deedbox.delivery``
sends.
"""

from __future__ import annotations

from deedbox.envelope.outbox.queue import Letter, cancel_message, prune_messages, queue_message
from deedbox.envelope.outbox.standing import Delivery, Tried, message_status
from deedbox.envelope.outbox.tables import CANCELLED, DELIVERED, QUEUED, UNDELIVERABLE

__all__ = [
    "CANCELLED",
    "DELIVERED",
    "QUEUED",
    "UNDELIVERABLE",
    "Delivery",
    "Letter",
    "Tried",
    "cancel_message",
    "message_status",
    "prune_messages",
    "queue_message",
]
