"""Who is this domain? Publishes our own answer under ``/.well-known/`` and finds out that of others (RFC 8615)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deedbox import Facet, Plugin

if TYPE_CHECKING:
    from deedbox.settings import Settings
    from deedbox_wellknown.development import Development


class WellKnown(Plugin):
    """The facet ``wellknown``."""

    facet = Facet(name="wellknown", summary="Publishes who this domain is, and finds out who others are.")

    @staticmethod
    def open_development(settings: Settings) -> Development | None:
        """The switch for ``.test`` names, where the settings turn it on; asked before there is a kernel."""
        from deedbox_wellknown.development import Development

        node = settings.node
        return Development(node.domain, node.development) if node.development else None
