"""Reads the id of an agent, ``local@domain``, as it stands on the wire.

Implements OIP 1.2 §3.1: the domain is LDH labels (RFC 1123 §2.1, A-labels for IDN), never an address, never a port.
Mapping what a person typed to such a domain is another matter and not done here: what was signed must already be it.
"""

from __future__ import annotations

import re
from typing import Final

MAX_DOMAIN: Final = 253

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# The last label starts with a letter, as every top-level domain does. That shuts out IPv4 in all its notations
# (WHATWG URL calls a host an address if its last label is a number, decimal or 0x), and with it the trailing dot.
_TOP = r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
_AGENT_ID = re.compile(rf"([a-z0-9._+-]{{1,64}})@((?:{_LABEL}\.)+{_TOP})", re.ASCII)


def parse_agent_id(text: object) -> tuple[str, str] | None:
    """Local part and domain, lower-cased for every comparison, or ``None`` if it is no agent id."""
    if not isinstance(text, str) or not text.isascii():
        return None
    found = _AGENT_ID.fullmatch(text.lower())
    if found is None or len(found[2]) > MAX_DOMAIN:
        return None
    return found[1], found[2]
