"""The signed message between domains: its shape, its signature, its sealed body."""

from __future__ import annotations
