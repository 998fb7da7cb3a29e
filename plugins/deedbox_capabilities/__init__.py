"""Capabilities: grants that are recorded, bounded, revocable, and shown as an opaque token (OIP 1.2 §14)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deedbox import Effect, Facet, Inside, Object, Plugin, hookimpl
from deedbox_capabilities.bearer import BearerAuthenticator
from deedbox_capabilities.explain import Explain, Subject
from deedbox_capabilities.mint import Mint, Terms
from deedbox_capabilities.policy import EXPLAIN, MINT, REVOKE, CapabilityPolicy
from deedbox_capabilities.revoke import Named, Revoke
from deedbox_capabilities.root import root_secret
from deedbox_capabilities.tokens import TokenKey

if TYPE_CHECKING:
    from deedbox import Kernel


class Capabilities(Plugin):
    """The facet ``capabilities``."""

    facet = Facet(
        name="capabilities",
        summary="Grants with a scope, an audience, a budget and an end, held up as an opaque token.",
        obligations=(
            "A token is never stored or logged; what is kept is its fingerprint.",
            "Every use asks the whole chain of grants again, so that a revocation holds at once and everywhere.",
            "A use and the run it pays for are one entry of the ledger, or neither is.",
        ),
        non_obligations=("Nobody but the node that made a token can verify it.",),
        migrations=Path(__file__).parent / "migrations",
    )

    def __init__(self, kernel: Kernel, settings: Any) -> None:
        super().__init__(kernel, settings)
        key = self.token_key()
        self._mint = Mint(kernel, key, MINT)
        self._revoke = Revoke(kernel)
        self._explain = Explain(kernel, key)
        self._policy = CapabilityPolicy(key)
        self._authenticator = BearerAuthenticator(key)

    def token_key(self) -> TokenKey:
        """The key of this node's tokens, derived from the root secret among its keys."""
        return TokenKey.derived(root_secret(self.kernel.settings.node.keys, self.kernel.ids.secret))

    @hookimpl
    def deedbox_objects(self) -> Iterable[Object[Any]]:
        return self._objects()

    def _objects(self) -> Iterator[Object[Any]]:
        shared: dict[str, Any] = {"listed": False, "kind": "system", "category": "capabilities"}
        yield Object(
            key=MINT,
            summary="Make a capability on the owner's terms.",
            effect=Effect.EXECUTION,
            arguments=Terms,
            runner=Inside(self._mint.run),
            sensitive=True,
            safe=False,
            idempotent=False,
            **shared,
        )
        yield Object(
            key=REVOKE,
            summary="End a capability and all that was made from it.",
            effect=Effect.EXECUTION,
            arguments=Named,
            runner=Inside(self._revoke.run),
            safe=False,
            idempotent=True,
            **shared,
        )
        yield Object(
            key=EXPLAIN,
            summary="What a capability can still do, and why not more.",
            effect=Effect.DISCLOSURE,
            arguments=Subject,
            runner=Inside(self._explain.run),
            safe=True,
            idempotent=True,
            **shared,
        )

    @hookimpl
    def deedbox_authenticators(self) -> Iterable[Any]:
        yield self._authenticator

    @hookimpl
    def deedbox_policies(self) -> Iterable[Any]:
        yield self._policy

    @hookimpl
    def deedbox_observers(self) -> Iterable[Any]:
        yield self._mint
