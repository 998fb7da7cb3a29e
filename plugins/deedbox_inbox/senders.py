"""Proving who sent an envelope, and opening what they sealed (OIP 1.2 §5.2, §6.7, §7, §8.3 steps 4 to 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deedbox import AgentRecord, Directory, Intent, Principal, Proof, Refusal, Unit
from deedbox.envelope.message import Envelope
from deedbox.envelope.seal import block_id, open_body, verify, verify_content
from deedbox.govern.limits import QUOTAS, Rate, Shield, spend_quota
from deedbox.identity.keys import P256Public
from deedbox.identity.principal import Assurance
from deedbox_inbox.conversation import CANCELLED, OPENING
from deedbox_inbox.reception import Sealed
from deedbox_inbox.tables import BLOCKS, THREADS

if TYPE_CHECKING:
    from deedbox import Node
    from deedbox.settings import Settings

_LOOKS_SECRET = (b"sh.", b"ok_", b"Bearer ", b"PRIVATE KEY")
_NEW_KEY_MAY_HELP = frozenset({"bad_signature", "key_not_of_sender"})
UNPROVEN_DOMAINS = 24
"""Whoever proves no name may make up any number of them, so all together have what so many would (OIP 1.2 §29 W60)."""
ASK_A_PERSON = "send a propose that names the object and its arguments: a person can decide"


@dataclass(slots=True)
class Found:
    """What was established of an envelope on the way: its body in the clear, and how to answer.

    ``encrypted``: it came sealed; ``opened``: and we could open it; ``withheld``: but it does not say for whom it was
    sealed, so its text is not handed on.
    """

    envelope: Envelope
    thread: str
    body: dict[str, Any] = field(default_factory=dict)
    args: str = ""
    encrypted: bool = False
    opened: bool = False
    withheld: bool = False
    suspicious: bool = False
    seal_to: P256Public | None = None
    block: str = ""
    """What the sealed block is known again by."""


def thread_key(home: str, other: str, conversation: str, *, verified: bool = True) -> str:
    """Threads belong to a pair, so that no third party can touch one; the unproven have a space of their own.

    The conversation's name, which a peer chose, comes first: one index serves whoever knows only that.
    """
    return f"{conversation}\n{home}\n{other if verified else f'?{other}'}"


class SealedAuthenticator:
    """Believes envelopes."""

    credential = Sealed

    def __init__(self, settings: Settings, *, echo_unbound: bool) -> None:
        limits = settings.limits
        self._rate = Rate.of(limits.inbox.rate)
        self._unverified = Rate.of(limits.inbox.unverified)
        self._unverified_in_all = Rate(self._unverified.count * UNPROVEN_DOMAINS, self._unverified.span)
        self._failures = Shield(limits.shield.failures)
        self._echo_unbound = echo_unbound

    def present(self, headers: Mapping[str, str]) -> None:
        """An envelope is a body, never a header."""
        return None

    async def prepare(self, node: Node, intent: Intent) -> Proof:
        envelope: Envelope = intent.credential.envelope
        who = f"{intent.address} {envelope.sender}"
        if self._failures.spent(who, intent.at):
            return Proof(refusal=Refusal("rate_limited", 429, "too many failures in this name", retry_after=60))
        try:
            record = await self._prove(node, envelope, intent.at)
        except Refusal as refusal:
            if refusal.code == "sender_unverifiable" and envelope.kind == "query" and envelope.enc is None:
                return self._unproven(intent, envelope)
            if refusal.status == 401:
                self._failures.admits(who, intent.at)
            return Proof(refusal=refusal, found=_found(envelope))
        return self._proven(node, intent, envelope, record)

    async def _prove(self, node: Node, envelope: Envelope, now: int) -> AgentRecord:
        directory = node.port(Directory)  # type: ignore[type-abstract]  # a protocol is the port's name
        record = directory.known(envelope.sender, now)
        if record is None or not record.fresh:
            verify_content(envelope, now=now)  # nobody is asked about what is not worth asking
            record = record or await directory.resolve(envelope.sender, now)
            if not record.fresh and envelope.kind != "query":
                raise _doubtful(record)
        keys = record.valid_keys(now) if record.keys else {}
        try:
            verify(envelope, record.key, now=now, keys_by_kid=keys)
        except Refusal as refusal:
            if refusal.code not in _NEW_KEY_MAY_HELP:
                raise
            return await self._prove_again(directory, envelope, record, now, refusal)
        return record

    async def _prove_again(
        self, directory: Directory, envelope: Envelope, record: AgentRecord, now: int, refusal: Refusal
    ) -> AgentRecord:
        """The wire names no keys, so an older valid one is tried, then the document is fetched once more."""
        keys = record.valid_keys(now)
        if _any_signed(envelope, keys, (key for key in keys.values() if key != record.key), now):
            return record
        refreshed = await directory.refresh(envelope.sender, now)
        if refreshed is None:
            raise refusal
        keys = refreshed.valid_keys(now)
        if not _any_signed(envelope, keys, (refreshed.key, *keys.values()), now):
            raise refusal
        if not refreshed.fresh and envelope.kind != "query":
            raise _doubtful(refreshed)
        return refreshed

    def _unproven(self, intent: Intent, envelope: Envelope) -> Proof:
        """An open question from somebody who publishes no key: answered, in a space and at a rate of its own."""
        if intent.once is not None:
            intent.once = replace(intent.once, key=f"unverified/{intent.once.key}")
        found = _found(envelope, verified=False)
        principal = Principal(envelope.sender, "peer", envelope.sender_domain)
        quota = f"unverified/{envelope.sender_domain}"
        return Proof(principal, asks=((QUOTAS, quota), (QUOTAS, "unverified/"), (THREADS, found.thread)), found=found)

    def _proven(self, node: Node, intent: Intent, envelope: Envelope, record: AgentRecord) -> Proof:
        domain = envelope.sender_domain
        principal = Principal(
            envelope.sender, "peer", domain, recognised=True, verified=True, assurance=Assurance.DOMAIN
        )
        found = _found(envelope)
        asks: tuple[Any, ...] = ((QUOTAS, f"inbox/{domain}"), (THREADS, found.thread))
        objection = None
        token = envelope.capability
        if envelope.enc is not None:
            found.block = block_id(envelope.enc)
            asks = (*asks, (BLOCKS, found.block))
            found.seal_to, found.encrypted = record.key, True
            try:
                inner = self._open(node, intent, envelope, found)
                token = token or inner
            except Refusal as refusal:
                objection = refusal
        if envelope.kind == "invoke" and objection is None:
            objection = _name_object(intent, found, token)
        return Proof(principal, objection=objection, asks=asks, found=found)

    def _open(self, node: Node, intent: Intent, envelope: Envelope, found: Found) -> str | None:
        """The sealed body into ``found``; the token that came inside."""
        failure = Refusal("decrypt_unavailable", 400, "this agent has no private key")
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
            found.body, found.opened, found.suspicious = opened.body, True, True
            found.withheld = not opened.bound and not self._echo_unbound
            return opened.capability
        raise failure

    def believe(self, unit: Unit, intent: Intent, proof: Proof) -> Principal:
        if proof.refusal is not None:
            raise proof.refusal
        principal = proof.principal
        if principal.verified:
            spend_quota(unit, f"inbox/{principal.domain}", self._rate, intent.at)
        else:
            self._spend_unproven(unit, principal.domain, intent.at)
        _hold_against(unit, intent, proof)
        return principal

    def _spend_unproven(self, unit: Unit, domain: str, now: int) -> None:
        """Charge a name and all names together, or neither: a refused one leaves no row behind."""
        mark = unit.mark()
        try:
            spend_quota(unit, f"unverified/{domain}", self._unverified, now)
            spend_quota(unit, "unverified/", self._unverified_in_all, now)
        except Refusal:
            unit.take_back(mark)
            raise


def _found(envelope: Envelope, *, verified: bool = True) -> Found:
    key = thread_key(envelope.recipient, envelope.sender, envelope.conversation, verified=verified)
    printed = envelope.body_bytes
    return Found(envelope, key, envelope.body, suspicious=any(map(printed.__contains__, _LOOKS_SECRET)))


def _doubtful(record: AgentRecord) -> Refusal:
    failure = record.doubt or "stale_document"
    return Refusal("sender_unverifiable", 401, "the sender's key is in doubt", extra={"resolve_failure": failure})


def _any_signed(envelope: Envelope, keys: Mapping[str, P256Public], candidates: Iterable[P256Public], now: int) -> bool:
    """Whether any of the keys the sender's document lists as valid now signed this."""
    for key in candidates:
        try:
            verify(envelope, key, now=now, keys_by_kid=keys)
        except Refusal:
            continue
        return True
    return False


def _name_object(intent: Intent, found: Found, token: str | None) -> Refusal | None:
    """An invoke names its object and arguments as strings (OIP 1.2 §8.4, W51), and holds up a capability."""
    key, args = found.body.get("key"), found.body.get("args")
    if not isinstance(key, str | None) or not isinstance(args, str | None):
        return Refusal("bad_args", 400, "key and args are strings")
    key = key or ""
    intent.object_key = key if len(key) <= 64 else f"{key[:64]}…"  # which no object is called
    intent.arguments = found.args = args or ""
    intent.token = token
    return (
        None if token else Refusal("capability_required", 401, "an invoke needs a capability", next_step=ASK_A_PERSON)
    )


def _hold_against(unit: Unit, intent: Intent, proof: Proof) -> None:
    """What only the database knows to say against a message; it outweighs what was found before."""
    found: Found = proof.found
    if found.encrypted and _came_from_another(unit, found):
        found.body, found.args, found.opened = {}, "", False
        intent.token = None
        proof.objection = Refusal("decrypt_refused", 400, "this block came first from another sender")
        if intent.named:
            intent.object_key = intent.arguments = ""
    elif found.envelope.kind in OPENING:
        thread = unit.fact(THREADS, found.thread)
        if thread is not None and thread["state"] == CANCELLED:
            proof.objection = Refusal("conversation_cancelled", 409, "this conversation was cancelled")


def _came_from_another(unit: Unit, found: Found) -> bool:
    """Whether this sealed block was first seen from somebody else: they could have no other way to it (W10)."""
    block = unit.fact(BLOCKS, found.block)
    return block is not None and block["sender"] != found.envelope.sender
