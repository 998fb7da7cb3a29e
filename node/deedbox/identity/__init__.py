"""Who signs: agent ids, key pairs and public keys as peers publish them."""

from __future__ import annotations
