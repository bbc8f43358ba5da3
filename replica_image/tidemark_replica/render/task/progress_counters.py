"""Progress counters: a task of a hydration counts the rows of each operator, and writes the counts to a file now and
then.

    Drain           0 false                       stage.<share>.<attempt>.progress     in the order of `nodes_of`
      Reduce        0 false       ──write──>      [[0, false], [0, false], [81920, false]]
        Source  81920 false

A count increases once per batch, and a file is written at most every WRITE_SECONDS: a short hydration writes none. The
counts are for display only. A file that cannot be written is skipped.
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
    """The updates that an operator has put out, and whether it has ended."""

    rows: int = 0
    ended: bool = False


class ProgressCounters:
    """The counters of one attempt of a stage."""

    def __init__(self, folder: Path, stage: str, share: int, attempt: int, tree: Pipeline) -> None:
        self._path = folder / progress_name(stage, share, attempt)
        self._nodes = tuple(nodes_of(tree))
        self._counts = {id(node): OperatorCount() for node in self._nodes}
        self._began = self._written = time.monotonic()

    def of(self, node: Pipeline) -> OperatorCount:
        """The count of a node of the tree; an unused count for other nodes."""
        return self._counts.get(id(node)) or OperatorCount()

    def write_if_due(self) -> None:
        """Write the counts unless they were written less than WRITE_SECONDS ago."""
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self._write()

    def finish(self) -> None:
        """Write the final counts: stages behind an exchange read how many rows will come."""
        if time.monotonic() - self._began >= WRITE_SECONDS:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        counts = (self._counts[id(node)] for node in self._nodes)
        try:
            temporary = self._path.with_suffix(".progress-tmp")
            temporary.write_text(json.dumps([[count.rows, count.ended] for count in counts]))
            temporary.replace(self._path)
        except OSError:
            return


def read_counts(folder: Path, stage: str, share: int) -> tuple[OperatorCount, ...] | None:
    """The counts of the attempt with the most rows; None if no attempt has written any."""
    found_counts = [
        found for path in folder.glob(progress_name(stage, share, "*")) if (found := _read(path)) is not None
    ]
    return max(found_counts, key=lambda counts: sum(count.rows for count in counts), default=None)


def has_reported(folder: Path, stage: str, share: int) -> bool:
    """Whether an attempt of a task has ended."""
    return any(folder.glob(report_name(stage, share, "*")))


def progress_name(stage: str, share: int, attempt: int | str) -> str:
    """The file name of an attempt's counts; a glob pattern if `attempt` is one."""
    return f"{stage}.{share}.{attempt}.progress"


def _read(path: Path) -> tuple[OperatorCount, ...] | None:
    try:
        return tuple(OperatorCount(rows, ended) for rows, ended in json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None
