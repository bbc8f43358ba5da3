"""The stages of a conversation, and the commands that each allows.

    CREATION ── Hello, CreateInstance ──► INITIALIZATION ── InitializationComplete ──► COMPUTATION

Both sides keep one `Stages` per connection: the replica refuses other commands, the controller never sends them.
"""

from __future__ import annotations

from enum import Enum

from tidemark_protocol.errors import StageViolation
from tidemark_protocol.messages.commands import Command, CreateInstance, Hello, InitializationComplete


class ConversationStage(Enum):
    """CREATION has two steps: before Hello, and between Hello and CreateInstance (GREETED)."""

    CREATION = "creation"
    GREETED = "creation, after Hello"
    INITIALIZATION = "initialization"
    COMPUTATION = "computation"


_NEXT: dict[ConversationStage, tuple[type, ConversationStage]] = {
    ConversationStage.CREATION: (Hello, ConversationStage.GREETED),
    ConversationStage.GREETED: (CreateInstance, ConversationStage.INITIALIZATION),
    ConversationStage.INITIALIZATION: (InitializationComplete, ConversationStage.COMPUTATION),
}
_ONCE = (Hello, CreateInstance, InitializationComplete)


class Stages:
    """The stage that the commands so far have led to."""

    def __init__(self) -> None:
        self.stage = ConversationStage.CREATION

    def accept(self, command: Command) -> ConversationStage:
        """Advance by one command; returns the stage after it. Raises StageViolation and keeps the stage where it is not
        allowed.
        """
        step = _NEXT.get(self.stage)
        if step is not None and isinstance(command, step[0]):
            self.stage = step[1]
        elif isinstance(command, _ONCE) or self.stage in (ConversationStage.CREATION, ConversationStage.GREETED):
            raise StageViolation(f"{type(command).__name__} is not allowed in the stage {self.stage.value}")
        return self.stage

    @property
    def may_respond(self) -> bool:
        """The replica sends nothing before CreateInstance."""
        return self.stage not in (ConversationStage.CREATION, ConversationStage.GREETED)
