"""This domain's own agents and the node's own keys: in a table with validity windows, their private halves in files.

The newest valid key of an agent signs and is what others seal to; older ones stay published while their window lasts
(OIP 1.2 §7.2, kernel-notes §2). The ledger's Ed25519 key is kept the same way under the name of the origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from sqlmodel import Field

from deedbox.clock import Entropy
from deedbox.identity.keys import Ed25519Pair, P256Pair, load_pair, store_pair
from deedbox.refusals import Fault, Refusal
from deedbox.storage.tables import Rows, Table
from deedbox.storage.unit import Unit

LEDGER = "ledger"


class Key(Table, table=True):
    """A key of ours: whose, from when, until when; ``thumbprint`` names the file of the private half."""

    thumbprint: str = Field(primary_key=True)
    agent: str
    alg: str
    jwk: str
    not_before: int
    not_after: int | None = None


KEYS = Rows(Key, key="thumbprint")


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A pair with its window, in milliseconds."""

    pair: P256Pair
    not_before: int
    not_after: int | None

    def holds(self, now: int) -> bool:
        """Whether ``now`` is in its window."""
        return self.not_before <= now and (self.not_after is None or now < self.not_after)


class Agents:
    """Which agents this node speaks for, and with which keys."""

    def __init__(self, domain: str, held: dict[str, list[HeldKey]], ledger: Ed25519Pair) -> None:
        self.domain = domain
        self.ledger = ledger
        self._held = {agent: sorted(keys, key=lambda key: -key.not_before) for agent, keys in held.items()}
        self.ids = tuple(held)

    @property
    def home(self) -> str:
        """The agent that speaks for the node itself: the first of the settings."""
        return self.ids[0]

    def hosts(self, agent: str) -> bool:
        """Whether an agent id, in lower case, is one of ours."""
        return agent in self._held

    def keys(self, agent: str, now: int) -> list[HeldKey]:
        """The keys whose window holds, newest first."""
        return [key for key in self._held[agent] if key.holds(now)]

    def pair(self, agent: str, now: int) -> P256Pair:
        """The key that signs now."""
        for key in self._held[agent]:
            if key.holds(now):
                return key.pair
        raise Refusal("no_signing_key", 500, f"no valid key of {agent}", fault=Fault.OURS)


def file_of(folder: Path, thumbprint: str) -> Path:
    """Where the private half of a key lives."""
    return folder / f"{thumbprint}.jwk"


def ensure(unit: Unit, domain: str, names: Sequence[str], folder: Path, entropy: Entropy) -> Agents:
    """Read the keys the table lists, making the first one for each agent that has none."""
    _is_ours(unit, domain)
    held: dict[str, list[HeldKey]] = {}
    for name in names:
        agent = f"{name}@{domain}"
        listed = _listed(unit, agent) or [_make(unit, agent, P256Pair.generate(entropy), "ES256", folder)]
        held[agent] = [HeldKey(_read(folder, row), row.not_before, row.not_after) for row in listed]
    listed = _listed(unit, LEDGER) or [_make(unit, LEDGER, Ed25519Pair.generate(entropy), "Ed25519", folder)]
    ledger = load_pair(file_of(folder, listed[-1].thumbprint))
    if not isinstance(ledger, Ed25519Pair):
        raise Refusal("bad_key", 500, "the ledger's key is not Ed25519", fault=Fault.OURS)
    return Agents(domain, held, ledger)


def _is_ours(unit: Unit, domain: str) -> None:
    """A slip in the domain would sign a head in another's name, into a ledger that can never lose it again."""
    asked = "select agent from identity_key where agent <> :ledger and agent not like :ours limit 1"
    found = unit.one(asked, ledger=LEDGER, ours=f"%@{domain}")
    if found is None:
        return
    other = found.agent.rpartition("@")[2]
    said = f"this database is that of {other}, and the settings say {domain}"
    step = "a node keeps its domain for ever: correct node.domain, or begin another with deedbox init"
    raise Refusal("another_domain", 500, said, next_step=step, fault=Fault.OURS)


def _listed(unit: Unit, agent: str) -> list[Any]:
    return unit.all("select * from identity_key where agent = :agent order by not_before", agent=agent)


def _make(unit: Unit, agent: str, pair: P256Pair | Ed25519Pair, alg: str, folder: Path) -> Any:
    thumbprint = pair.public.thumbprint
    store_pair(file_of(folder, thumbprint), pair)
    jwk = orjson.dumps(pair.public.jwk).decode()
    unit.change(
        "insert into identity_key (thumbprint, agent, alg, jwk, not_before, not_after)"
        " values (:thumbprint, :agent, :alg, :jwk, :now, null)",
        thumbprint=thumbprint,
        agent=agent,
        alg=alg,
        jwk=jwk,
        now=unit.now,
    )
    return Key(thumbprint=thumbprint, agent=agent, alg=alg, jwk=jwk, not_before=unit.now)


def _read(folder: Path, row: Any) -> P256Pair:
    pair = load_pair(file_of(folder, row.thumbprint))
    if not isinstance(pair, P256Pair) or pair.public.thumbprint != row.thumbprint:
        raise Refusal("bad_key", 500, f"the file of {row.thumbprint} holds another key", fault=Fault.OURS)
    return pair


def rotate(unit: Unit, agent: str, folder: Path, entropy: Entropy, overlap: int) -> str:
    """Begin a new key; the old ones stay valid for ``overlap`` milliseconds, longer than every peer's cache."""
    unit.change(
        "update identity_key set not_after = :until where agent = :agent and not_after is null",
        until=unit.now + overlap,
        agent=agent,
    )
    return str(_make(unit, agent, P256Pair.generate(entropy), "ES256", folder).thumbprint)
