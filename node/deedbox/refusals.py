"""Every way the node says no: a stable code, an HTTP status, whose fault it was, and the next step.

A refusal is a normal outcome, never a bug: it is raised where a rule fails, travels up to the road or the surface,
and is phrased there. Codes are those of the wire specification where it names one (OIP 1.2 §4.3, §5.2, §8.4, §16.6).
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """Who could have done better, which is who must act next."""

    THEIRS = "theirs"
    OURS = "ours"
    NETWORK = "network"


class Refusal(Exception):
    """A no with a reason.

    ``code`` is the stable word a program compares; ``status`` the HTTP status it stands for (virtual where the
    protocol answers 200); ``detail`` one sentence for a person, free of secrets; ``next_step`` what to do about it;
    ``retry_after`` whole seconds, where waiting helps; ``extra`` further members of the answer.
    """

    def __init__(
        self,
        code: str,
        status: int = 400,
        detail: str = "",
        *,
        next_step: str = "",
        fault: Fault = Fault.THEIRS,
        retry_after: int | None = None,
        extra: dict[str, object] | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.status = status
        self.detail = detail
        self.next_step = next_step
        self.fault = fault
        self.retry_after = retry_after
        self.extra = extra or {}

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}" if self.detail else self.code


class Unavailable(Refusal):
    """We could not decide; nothing happened and asking again later is right (fail closed)."""

    def __init__(self, code: str, detail: str = "", *, next_step: str = "", retry_after: int = 5) -> None:
        super().__init__(code, 503, detail, next_step=next_step, fault=Fault.OURS, retry_after=retry_after)
