"""The messages between driver and step worker: values over a connection of `multiprocessing`, one member at a time.

Both ends run the same code, and no other process can reach the socket, so messages are plain pickled values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark_replica.render.task.description import StageReport

MAX_TREES = 4096
"""The number of trees that a process keeps. Both ends count the trees sent, and forget all of them before one more."""


@dataclass(frozen=True, slots=True)
class StageRequest:
    """One stage to be run. It carries the tree until the process has it."""

    number: int
    """The attempt's number, in file names."""
    stage: str
    description: str
    key: str
    """The tree's name, unique over all dataflows."""
    tree: bytes | None


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has imported its modules."""


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """A member's report, or its error."""

    report: StageReport | None = None
    error: str | None = None
    public_text: str | None = None
    """The part of the error that every user may see (values/failure_text.py)."""
