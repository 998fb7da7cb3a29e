"""Sending what the outbox holds: find the recipient, sign, hand over, judge the reply (OIP 1.2 §12.1, decision 30).

The decision to send was made on the road; a delivery is a job. How it ended goes down the road once, as ``FED_SENT``,
so that whoever keeps conversations or statistics sees it as a receipt.
"""

from __future__ import annotations

from deedbox.delivery.exchange import FED_SENT, SentExchange
from deedbox.delivery.parcel import Handover, NotDelivered, Parcel
from deedbox.delivery.sending import DELIVERY_JOBS, send_message

__all__ = ["DELIVERY_JOBS", "FED_SENT", "Handover", "NotDelivered", "Parcel", "SentExchange", "send_message"]
