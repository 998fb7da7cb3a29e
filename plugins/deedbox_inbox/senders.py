"""Proving who sent an envelope, and opening what they sealed (OIP 1.2 §5.2, §6.7, §7, §8.3 steps 4 to 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deedbox import AgentRecord, Directory, Intent, Principal, Proof, Refusal, Unit
from deedbox.envelope.message import Envelope
from deedbox.envelope.seal import open_body, verify, verify_content
from deedbox.govern.limits import QUOTAS, Rate, Shield, spend_quota
from deedbox.identity.keys import P256Public
from deedbox.identity.principal import Assurance
from deedbox_inbox.reception import Sealed
from deedbox_inbox.tables import BLOCKS, THREADS

if TYPE_CHECKING:
    from deedbox import Node
    from deedbox.settings import Settings

DAY = 86_400_000
_LOOKS_LIKE_TOKEN = b"sh."
_UNKNOWN = Refusal("sender_unverifiable", 401, "the sender's key could not be had")


@dataclass(slots=True)
class Found:
    """What was established of an envelope on the way: its body in the clear, and how to answer."""

    envelope: Envelope
    thread: str
    body: dict[str, Any] = field(default_factory=dict)
    args: str = ""
    encrypted: bool = False
    withheld: bool = False
    has_token: bool = False
    seal_to: P256Public | None = None


def thread_key(home: str, other: str, conversation: str) -> str:
    """Threads belong to a pair, so that no third party can touch one (OIP 1.2 §11.6)."""
    return f"{home}\n{other}\n{conversation}"


class SealedAuthenticator:
    """Believes envelopes."""

    credential = Sealed

    def __init__(self, settings: Settings, *, echo_unbound: bool) -> None:
        limits = settings.limits
        self._rate = Rate.of(limits.inbox.rate)
        self._unverified = Rate.of(limits.inbox.unverified)
        self._failures = Shield(limits.shield.failures)
        self._echo_unbound = echo_unbound

    def present(self, headers: Mapping[str, str]) -> None:
        """An envelope is a body, never a header."""
        return None

    async def prepare(self, node: Node, intent: Intent) -> Proof:
        envelope: Envelope = intent.credential.envelope
        found = Found(envelope, thread_key(envelope.recipient, envelope.sender, envelope.conversation))
        found.body = envelope.body
        who = f"{intent.address} {envelope.sender}"
        if self._failures.spent(who, intent.at):
            return Proof(refusal=Refusal("rate_limited", 429, "too many failures in this name", retry_after=60))
        try:
            verify_content(envelope, now=intent.at)
            record = await self._prove(node, envelope, intent.at)
        except Refusal as refusal:
            if refusal.code == "sender_unverifiable" and envelope.kind == "query" and envelope.enc is None:
                return self._unproven(intent, envelope, found)
            if refusal.status == 401:
                self._failures.admits(who, intent.at)
            return Proof(refusal=refusal, found=found)
        return self._proven(node, intent, envelope, found, record)

    async def _prove(self, node: Node, envelope: Envelope, now: int) -> AgentRecord:
        directory = node.port(Directory)  # type: ignore[type-abstract]  # a protocol is the port's name
        record = directory.known(envelope.sender, now)
        if record is None:
            record = await directory.resolve(envelope.sender, now)
        _require_authority(record, envelope)
        try:
            keys = record.valid_keys(now) if record.keys else None
            verify(envelope, record.key, now=now, keys_by_kid=keys)
        except Refusal as refusal:
            if refusal.code not in ("bad_signature", "key_not_of_sender"):
                raise
            return await self._prove_again(directory, envelope, record, now, refusal)
        return record

    async def _prove_again(
        self, directory: Directory, envelope: Envelope, record: AgentRecord, now: int, refusal: Refusal
    ) -> AgentRecord:
        """The wire names no keys, so an older valid one is tried, then the document is fetched once more."""
        if _by_any(envelope, record, now):
            return record
        refreshed = await directory.refresh(envelope.sender, now)
        if refreshed is not None and _by_any(envelope, refreshed, now):
            _require_authority(refreshed, envelope)
            return refreshed
        raise refusal

    def _unproven(self, intent: Intent, envelope: Envelope, found: Found) -> Proof:
        """An open question from somebody who publishes no key: answered, in a space and at a rate of its own."""
        if intent.once is not None:
            intent.once = replace(intent.once, key=f"unverified/{intent.once.key}")
        found.has_token = _LOOKS_LIKE_TOKEN in envelope.body_bytes
        principal = Principal(envelope.sender, "peer", envelope.sender_domain)
        quota = f"unverified/{envelope.sender_domain}"
        return Proof(principal, asks=((QUOTAS, quota), (THREADS, found.thread)), found=found)

    def _proven(self, node: Node, intent: Intent, envelope: Envelope, found: Found, record: AgentRecord) -> Proof:
        domain = envelope.sender_domain
        principal = Principal(
            envelope.sender, "peer", domain, recognised=True, verified=True, assurance=Assurance.DOMAIN
        )
        asks: tuple[Any, ...] = ((QUOTAS, f"inbox/{domain}"), (THREADS, found.thread))
        objection = None
        token = envelope.capability
        if envelope.enc is not None:
            asks = (*asks, (BLOCKS, envelope.body_sha256))
            found.seal_to, found.encrypted = record.key, True
            try:
                token = self._open(node, intent, envelope, found) or token
            except Refusal as refusal:
                objection = refusal
        found.has_token = _LOOKS_LIKE_TOKEN in envelope.body_bytes if not found.encrypted else True
        if envelope.kind == "invoke" and objection is None:
            objection = _name_object(intent, found, token)
        return Proof(principal, objection=objection, asks=asks, found=found)

    def _open(self, node: Node, intent: Intent, envelope: Envelope, found: Found) -> str | None:
        failure: Refusal | None = None
        for held in node.kernel.agents.keys(envelope.recipient, intent.at):
            try:
                opened = open_body(
                    envelope.enc,
                    held.pair,
                    sender=envelope.sender,
                    recipient=envelope.recipient,
                    message_id=envelope.id,
                )
            except Refusal as refusal:
                failure = refusal
                continue
            found.body = opened.body
            found.withheld = not opened.bound and not self._echo_unbound
            return opened.capability
        raise failure or Refusal("decrypt_unavailable", 400, "this agent has no private key")

    def believe(self, unit: Unit, intent: Intent, proof: Proof) -> Principal:
        if proof.refusal is not None:
            raise proof.refusal
        principal = proof.principal
        if principal.verified:
            spend_quota(unit, f"inbox/{principal.domain}", self._rate, intent.at)
        else:
            spend_quota(unit, f"unverified/{principal.domain}", self._unverified, intent.at)
        return principal


def _require_authority(record: AgentRecord, envelope: Envelope) -> None:
    """A record that may only serve disclosure proves a question and nothing else (decision 25, OIP 1.2 §29 W14)."""
    if not record.fresh and envelope.kind != "query":
        failure = record.doubt or "stale_document"
        raise Refusal(_UNKNOWN.code, 401, "the sender's key serves disclosure only", extra={"resolve_failure": failure})


def _by_any(envelope: Envelope, record: AgentRecord, now: int) -> bool:
    """Whether any key the sender's document lists as valid now signed this."""
    keys = record.valid_keys(now)
    for key in (record.key, *keys.values()):
        try:
            verify(envelope, key, now=now, keys_by_kid=keys)
        except Refusal:
            continue
        return True
    return False


def _name_object(intent: Intent, found: Found, token: str | None) -> Refusal | None:
    """An invoke names its object and arguments as strings (OIP 1.2 §8.4, W51)."""
    key, args = found.body.get("key"), found.body.get("args")
    intent.token = token
    if not isinstance(key, str | None) or not isinstance(args, str | None):
        intent.object_key = ""
        return Refusal("bad_args", 400, "key and args are strings")
    intent.object_key, found.args = key or "", args or ""
    intent.arguments = found.args
    return None
