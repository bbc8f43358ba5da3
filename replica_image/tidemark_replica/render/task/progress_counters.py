"""What a task of a hydration tells of how far it is: a count per operator, now and then, in a file of the attempt.

    Drain           0 false                       stage.<share>.<attempt>.progress     in the order of `nodes_of`
      Reduce        0 false       ──tell──>       [[0, false], [0, false], [81920, false]]
        Source  81920 false

A count goes up once for a batch, and a file is written at most every half second: a short hydration writes none. It is
for people; nothing that is computed depends on it, and a file that cannot be written is none.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from tidemark_replica.render.plan.pipeline import Pipeline, nodes_of
from tidemark_replica.render.task.description import report_name

WRITE_SECONDS = 0.5


@dataclass(slots=True)
class OperatorCount:
    """Updates that an operator has handed on, and whether it has come to its end."""

    rows: int = 0
    ended: bool = False


class ProgressCounters:
    """Of one attempt of a stage."""

    def __init__(self, folder: Path, stage: str, share: int, attempt: int, tree: Pipeline) -> None:
        self._path = folder / progress_name(stage, share, attempt)
        self._nodes = tuple(nodes_of(tree))
        self._counts = {id(node): OperatorCount() for node in self._nodes}
        self._began = self._told = time.monotonic()

    def of(self, node: Pipeline) -> OperatorCount:
        """Of a node of the tree; of any other one that nobody asks for."""
        return self._counts.get(id(node)) or OperatorCount()

    def tell(self) -> None:
        """Write it down, unless that was done a moment ago."""
        if time.monotonic() - self._told >= WRITE_SECONDS:
            self._write()

    def finish(self) -> None:
        """All is counted: those behind an exchange see how much there is to come."""
        if time.monotonic() - self._began >= WRITE_SECONDS:
            self._write()

    def _write(self) -> None:
        self._told = time.monotonic()
        counts = (self._counts[id(node)] for node in self._nodes)
        try:
            temporary = self._path.with_suffix(".progress-tmp")
            temporary.write_text(json.dumps([[count.rows, count.ended] for count in counts]))
            temporary.replace(self._path)
        except OSError:
            return


def read_counts(folder: Path, stage: str, share: int) -> tuple[OperatorCount, ...] | None:
    """What the attempt that is furthest has told; None where none has."""
    told = [found for path in folder.glob(progress_name(stage, share, "*")) if (found := _read(path)) is not None]
    return max(told, key=lambda counts: sum(count.rows for count in counts), default=None)


def has_reported(folder: Path, stage: str, share: int) -> bool:
    """Whether an attempt of a task has come to its end."""
    return any(folder.glob(report_name(stage, share, "*")))


def progress_name(stage: str, share: int, attempt: int | str) -> str:
    """Where an attempt of a stage's task tells of its progress; a pattern for that, if `attempt` is one."""
    return f"{stage}.{share}.{attempt}.progress"


def _read(path: Path) -> tuple[OperatorCount, ...] | None:
    try:
        return tuple(OperatorCount(rows, ended) for rows, ended in json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None
