"""The addresses the door puts into its answers; none of them ever holds a token (OIP 1.2 §16.11)."""

from __future__ import annotations

from dataclasses import dataclass

VERSION = "1.2.0"
PROTOCOL = {"protocol": "OIP", "version": VERSION}
PLACEHOLDER = "<TOKEN>"


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses below a node's own."""

    base: str

    @property
    def door(self) -> str:
        return f"{self.base}/api/dispatch"

    @property
    def registry(self) -> str:
        return f"{self.door}?registry=1"

    def confirm(self, invocation: str) -> str:
        return f"{self.door}?confirm={invocation}"

    def describe(self, key: str) -> str:
        return f"{self.door}?key={key}"

    def invoke(self, key: str) -> str:
        return f"{self.door}?invoke={key}&share={PLACEHOLDER}"
