"""Whether an envelope is the reply to the message it came back for: a good signature alone says nothing of that.

Implements the checks OIP 1.2 §12.1 demands before a reply is trusted (§29 W55).
"""

from __future__ import annotations

from typing import Final

from deedbox.envelope.message import Envelope
from deedbox.refusals import Refusal

REPLIES: Final = frozenset({"result", "event", "error"})


def check_reply(reply: Envelope, *, message_id: str, sender: str, recipient: str, conversation: str) -> None:
    """Raises :class:`Refusal` naming the first of the reply's members that does not belong to the message we sent.

    ``sender`` and ``recipient`` are the message's own, in lower case: the reply runs the other way.
    """
    if reply.sender != recipient:
        raise _not_ours("reply_from_another", "it comes from an agent that was not addressed")
    if reply.recipient != sender:
        raise _not_ours("reply_to_another", "it is addressed to somebody else")
    if reply.in_reply_to != message_id:
        raise _not_ours("reply_to_other_message", "it answers another message")
    if reply.conversation != conversation:
        raise _not_ours("reply_in_other_conversation", "it belongs to another conversation")
    if reply.kind not in REPLIES:
        raise _not_ours("reply_of_wrong_kind", "a reply is a result, an event or an error")


def _not_ours(code: str, detail: str) -> Refusal:
    return Refusal(code, 502, f"the reply is not taken: {detail}")
