"""Which stored replies have left this process: one mark a group, written with a later group (decision 31)."""

from __future__ import annotations


class Handout:
    """Counts the replies of each group that are still to be given."""

    def __init__(self) -> None:
        self._waiting: dict[int, int] = {}
        self._given: list[int] = []

    def expect(self, group: int) -> None:
        """A reply of this group will be handed out. Called in the group, before anybody could give it."""
        self._waiting[group] = self._waiting.get(group, 0) + 1

    def given(self, group: int) -> bool:
        """One was; true when it was the group's last."""
        left = self._waiting.get(group, 0) - 1
        if left > 0:
            self._waiting[group] = left
            return False
        self._waiting.pop(group, None)
        self._given.append(group)
        return True

    def take(self) -> list[int]:
        """The groups that are complete and not yet marked."""
        given, self._given = self._given, []
        return given
