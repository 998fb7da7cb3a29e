"""The one way an exchange with another node fails, and whether the other side may have acted on it."""

from __future__ import annotations

from deedbox.refusals import Fault, Refusal


class OutgoingRefusal(Refusal):
    """An exchange that came to no usable answer.

    Codes: ``address_refused``, ``redirect_refused``, ``response_too_large``, ``content_encoding_refused``,
    ``wrong_content_type``, ``timed_out``, ``unreachable``, ``http_status`` (``extra["status"]``), ``too_many_fetches``.
    ``sent`` is true once any of our body may have reached the peer, which may then have acted on it.
    """

    def __init__(
        self, code: str, detail: str, *, retry_after: int | None = None, extra: dict[str, object] | None = None
    ) -> None:
        status = 504 if code == "timed_out" else 502
        super().__init__(code, status, detail, fault=Fault.NETWORK, retry_after=retry_after, extra=extra)
        self.sent = False
