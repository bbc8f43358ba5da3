"""A self-join: one stage of a linear join whose two sides are one collection by one key, arranged once.

    out = input join input        time = the later one, diff = the product

    chunk ──probe, as left──> arranged so far ──┐
      ├──> then added                           ├──> left output columns ++ right output columns
      └──probe, as right──> arranged so far ────┘

    (1, x) 5 +1, (1, y) 7 +1   ──>   (x, x) 5 +1, (x, y) 7 +1, (y, x) 7 +1, (y, y) 7 +1

State: the ok rows of the input, by key. Each ordered pair of rows is matched once, by the later of its two chunks;
pairs within a chunk are matched when it is probed as right, after it was added. So the updates are those of a join
(`join.py`) that keeps both sides and takes each chunk as left, then as right. Cost of an update: as there, and one file
in the place of two. Errs rows of the input come out once for each side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemark_replica.arrangement.rows.updates import Updates, rechunk
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.joins.join import JoinInput, JoinSide, JoinSpec, JoinStage


@dataclass(frozen=True)
class SelfJoinSpec:
    """The arrangement of the input by the join's key, and the columns of it that each side puts out."""

    arrangement: ArrangementId
    left: tuple[int, ...]
    right: tuple[int, ...]
    null_safe: tuple[int, ...] = ()
    """Key positions at which NULL equals NULL."""

    @property
    def sides(self) -> JoinSpec:
        """The stage that this is: two inputs, one arrangement."""
        left, right = (JoinInput(self.arrangement, columns) for columns in (self.left, self.right))
        return JoinSpec(left, right, self.null_safe)


def self_join(context: StepContext, spec: SelfJoinSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the joined updates of a collection with itself. Raises MalformedUpdates, DiffOverflow."""
    stage = JoinStage(context, spec.sides)
    chunks = rechunk(((JoinSide.LEFT, batch) for batch in updates), context.run_rows, stage.check)
    joined = (out for _, chunk in chunks for side in JoinSide for out in stage.feed(side, chunk))
    for _, packed in rechunk(((None, out) for out in joined), context.chunk_rows):
        yield packed
    stage.commit()
