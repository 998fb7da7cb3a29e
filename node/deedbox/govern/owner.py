"""The owner: by the one root key, kept as a hash and presented in a header only (OIP 1.2 §14.6), or as the node's user.

The second is for commands beside a running node (decision 34): whoever may read the node's keys needs no other.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deedbox.canonical import b64url
from deedbox.clock import Entropy
from deedbox.identity.principal import Assurance, OwnerKey, Principal
from deedbox.intent import Intent, Proof
from deedbox.refusals import Refusal

if TYPE_CHECKING:
    from deedbox.node import Node
    from deedbox.storage.unit import Unit

HEADER = "x-terminal-key"
FILE = "owner.sha256"
OWNER = Principal("owner", "owner", recognised=True, verified=True, assurance=Assurance.ORGANISATION)


def make_owner_key(folder: Path, entropy: Entropy) -> str:
    """A new owner key: 256 random bits, told once; only its hash is written, readable by us alone."""
    secret = f"ok_{b64url(entropy(32))}"
    path = folder / FILE
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(hashlib.sha256(secret.encode()).hexdigest() + "\n")
    return secret


class OwnerAuthenticator:
    """Believes whoever shows the key whose hash we keep."""

    credential = OwnerKey

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def present(self, headers: Mapping[str, str]) -> OwnerKey | None:
        found = headers.get(HEADER)
        return OwnerKey(found) if found else None

    async def prepare(self, node: Node, intent: Intent) -> Proof:
        given = hashlib.sha256(intent.credential.secret.encode()).hexdigest()
        try:
            kept = self._file.read_text().strip()  # 64 bytes, read each time so a new key acts at once
        except FileNotFoundError:
            kept = ""
        if kept and hmac.compare_digest(given, kept):
            return Proof(OWNER)
        return Proof(refusal=Refusal("unauthorized", 401, "this is not the owner's key"))

    def believe(self, unit: Unit, intent: Intent, proof: Proof) -> Principal:
        if proof.refusal is not None:
            raise proof.refusal
        return proof.principal


@dataclass(frozen=True, slots=True)
class LocalOwner:
    """A user of this machine, by the operating system's word; a credential no network surface can make."""

    uid: int


class LocalOwnerAuthenticator:
    """Believes the user the node runs as, and root."""

    credential = LocalOwner

    def present(self, headers: Mapping[str, str]) -> None:
        """Never found in a request."""

    async def prepare(self, node: Node, intent: Intent) -> Proof:
        if intent.credential.uid in (os.geteuid(), 0):
            return Proof(OWNER)
        return Proof(refusal=Refusal("unauthorized", 401, "this user is not the node's owner"))

    def believe(self, unit: Unit, intent: Intent, proof: Proof) -> Principal:
        if proof.refusal is not None:
            raise proof.refusal
        return proof.principal
