"""The stages of a conversation, and which command may come in each.

    CREATION ── Hello, CreateInstance ──► INITIALIZATION ── InitializationComplete ──► COMPUTATION

Both sides run one `Stages` per connection: the replica refuses what does not fit, the controller never sends it.
"""

from __future__ import annotations

from enum import Enum

from tidemark_protocol.errors import StageViolation
from tidemark_protocol.messages.commands import Command, CreateInstance, Hello, InitializationComplete


class Stage(Enum):
    """CREATION has two steps: before Hello, and between Hello and CreateInstance."""

    CREATION = "creation"
    GREETED = "creation, after Hello"
    INITIALIZATION = "initialization"
    COMPUTATION = "computation"


_NEXT: dict[Stage, tuple[type, Stage]] = {
    Stage.CREATION: (Hello, Stage.GREETED),
    Stage.GREETED: (CreateInstance, Stage.INITIALIZATION),
    Stage.INITIALIZATION: (InitializationComplete, Stage.COMPUTATION),
}
_ONCE = (Hello, CreateInstance, InitializationComplete)


class Stages:
    """The stage that the commands seen so far lead to."""

    def __init__(self) -> None:
        self.stage = Stage.CREATION

    def accept(self, command: Command) -> Stage:
        """Moves on by one command and returns the stage after it; raises StageViolation, staying where it was."""
        step = _NEXT.get(self.stage)
        if step is not None and isinstance(command, step[0]):
            self.stage = step[1]
        elif isinstance(command, _ONCE) or self.stage in (Stage.CREATION, Stage.GREETED):
            raise StageViolation(f"{type(command).__name__} is not allowed in the stage {self.stage.value}")
        return self.stage

    @property
    def may_respond(self) -> bool:
        """The replica sends nothing before the instance was created."""
        return self.stage not in (Stage.CREATION, Stage.GREETED)
