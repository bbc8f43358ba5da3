"""One stage of a linear join: two arranged inputs, joined by equal keys.

    out = left join right         time = the later one, diff = the product

    left  chunk ──probe──> right arranged so far ──┐
      └──────────────> then added to left          ├──> output columns of left ++ those of right
    right chunk ──probe──> left arranged so far  ──┘

    left (1, x) 5 +1, right (1, y) 3 +1   ──>   (x, y) 5 +1

State: the ok rows of both inputs, by key. Cost of an update: the delta and its matches, in slices of at most
`chunk_rows`: a skewed key costs time, not memory. In a dataflow's only step left comes before right, and the left ok
rows alone are kept, until the step ends; none if an input is shared.

Every pair is matched exactly once: by the later of its two chunks if the stage maintains both arrangements. A side may
also be a *shared* arrangement that already holds this step's updates: an imported index, or what another operator of
the dataflow keeps. Then the maintained side matches all of it below `upper`, and its updates match what the maintained
side held before the step. (Of two shared sides, left matches right below `upper`, right matches left before the step.)
Or a side is the rows of a reduce, which are found in its state before the step (`stored_groups.py`): this step's rows
of the left side are kept until the step ends, and right comes after left, so none of right are kept.
In a self-join both sides are one maintained arrangement, and every chunk comes as left, then as right (`self_join.py`).

NULL keys match nothing, except at null-safe positions. Errs rows of both inputs pass through. A product of diffs beyond
64 bits raises DiffOverflow.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.batches.key_lookup import Hits, Keys, probe
from tidemark_replica.arrangement.errors import DiffOverflow, MalformedUpdates, OutOfFrontier
from tidemark_replica.arrangement.rows.columns import any_null, canonical_rows, take
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.nested_columns import row_bytes
from tidemark_replica.arrangement.rows.updates import (
    Array,
    Ints,
    Updates,
    as_error_rows,
    check_updates,
    make_updates,
    rechunk,
    rows_that_fit,
    split_errors,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.kernels.joins.stored_groups import Evaluation, GroupRows, StoredGroups
from tidemark_replica.kernels.kernel_input import net_oks


class JoinSide(Enum):
    """The input of the join that a batch belongs to."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> "JoinSide":
        return JoinSide.RIGHT if self is JoinSide.LEFT else JoinSide.LEFT


@dataclass(frozen=True)
class JoinInput:
    """One input of the stage, arranged by its join key."""

    arrangement: ArrangementId
    output_columns: tuple[int, ...]
    """The columns of this side that the output has."""
    shared: bool = False
    """Whether another operator keeps the arrangement, complete up to the step's limit: the stage only reads it."""
    groups: GroupRows | None = None
    """The way from the groups of a reduce to the rows: the arrangement is its state. None: an arrangement of rows."""


@dataclass(frozen=True)
class JoinSpec:
    """A stage of a linear join."""

    left: JoinInput
    right: JoinInput
    null_safe: tuple[int, ...] = ()
    """Key positions at which NULL equals NULL."""

    def input(self, side: JoinSide) -> JoinInput:
        return self.left if side is JoinSide.LEFT else self.right


def no_evaluation(mfp: MapFilterProject) -> Callable[[Updates], Updates]:
    """The evaluation of joins without computed rows of groups. Raises ValueError."""
    raise ValueError(f"a join without an evaluator computes rows of groups: {mfp}")


def join(
    context: StepContext,
    spec: JoinSpec,
    updates: Iterable[tuple[JoinSide, Updates]],
    evaluation: Evaluation = no_evaluation,
) -> Iterator[Updates]:
    """Yield the joined updates. Sides may interleave, unless right is the rows of a reduce or this is the only step;
    a hydration is cheaper with long stretches of one side. `evaluation`: computes rows of groups.

    Raises MalformedUpdates, DiffOverflow; OutOfFrontier for a shared arrangement without this step's updates.
    """
    stage = JoinStage(context, spec, evaluation)
    joined = (out for side, chunk in rechunk(updates, context.run_rows, stage.check) for out in stage.feed(side, chunk))
    for _, packed in rechunk(((None, out) for out in joined), context.chunk_rows):
        yield packed
    stage.commit()


class JoinStage:
    """The stage during one step."""

    def __init__(self, context: StepContext, spec: JoinSpec, evaluation: Evaluation = no_evaluation) -> None:
        self._context = context
        self._spec = spec
        groups = {side: (i.arrangement, i.groups) for side in JoinSide if (i := spec.input(side)).groups is not None}
        self._groups = {side: StoredGroups(context, a, of, evaluation) for side, (a, of) in groups.items()}
        self._layouts = {side: _layout(context, spec.input(side)) for side in JoinSide}
        maintained = {side: i.arrangement for side in JoinSide if not (i := spec.input(side)).shared and not i.groups}
        runs = {arrangement: StepRuns(context, arrangement) for arrangement in maintained.values()}
        self._runs = {side: runs[arrangement] for side, arrangement in maintained.items()}
        self._runs |= {side: StepRuns(context, a, of.layout) for side, (a, of) in groups.items()}
        self._joins_itself = len(runs) < len(maintained)
        self._left_comes_first = (context.is_only_step and not self._joins_itself) or JoinSide.RIGHT in self._groups
        self._right_has_come = False
        _check_keys(self._layouts)
        for side in JoinSide:
            if spec.input(side).shared:
                check_shared(context, spec.input(side).arrangement)
        output = [(side, c) for side in JoinSide for c in spec.input(side).output_columns]
        self._types = [self._layouts[side].types[c] for side, c in output]

    def check(self, side: JoinSide, updates: Updates) -> None:
        """Raise MalformedUpdates for a batch with other columns than this side, or times outside this step; also for a
        left one after a right one, where right is kept for no later one.
        """
        if self._left_comes_first:
            if side is JoinSide.LEFT and self._right_has_come:
                raise MalformedUpdates(
                    "in a dataflow's only step, and before the rows of a reduce, all of a join's left input comes first"
                )
            self._right_has_come = side is JoinSide.RIGHT
        check_updates(updates, self._layouts[side].types, self._context.lower, self._context.upper)

    def feed(self, side: JoinSide, chunk: Updates) -> Iterator[Updates]:
        """Yield the matches of a chunk, then add it to its side; in a self-join, as left alone."""
        oks, errs = split_errors(chunk)
        if errs.num_rows:
            yield as_error_rows(errs, self._types)
        oks = net_oks(self._context, oks)
        if oks.num_rows == 0:
            return
        rows = sorted_rows(canonical_rows(oks), self._layouts[side])
        own = [rows.column(i) for i in self._fetched(side)]
        for hits in self._meet(side, self._keys(side, rows), pairs_at_once(own, rows.num_rows, self._context)):
            yield self._joined(side, rows, hits)
        if self._is_read_again(side):
            self._runs[side].add(rows)

    def commit(self) -> None:
        """Pass the batches of the maintained sides to the step. Rows of a reduce end with the step."""
        for side, runs in self._runs.items():
            if side in self._groups:
                runs.discard()
            elif side is JoinSide.LEFT or not self._joins_itself:
                runs.commit_state()

    def _is_read_again(self, side: JoinSide) -> bool:
        """Whether the join keeps a chunk of this side: for later steps, or in this one for the right input."""
        if side not in self._runs or (self._joins_itself and side is JoinSide.RIGHT):
            return False
        if self._context.is_only_step or side in self._groups:
            return side is JoinSide.LEFT and JoinSide.RIGHT in self._runs
        return True

    def _keys(self, side: JoinSide, rows: Any) -> Keys:
        """The keys of a sorted chunk, without those with a NULL at a position that is not null-safe."""
        columns = [rows.column(1 + k) for k in self._layouts[side].key]
        strict = [c for position, c in enumerate(columns) if position not in self._spec.null_safe]
        barred = any_null(strict, rows.num_rows)
        if barred is None:
            return Keys.sorted(file_hashes(rows), columns)
        able = np.flatnonzero(~barred)
        return Keys(file_hashes(rows)[able], take(columns, able), able)

    def _meet(self, side: JoinSide, keys: Keys, slice_rows: int) -> Iterator[Hits]:
        """The matches of this side's keys in the other side that this side has to find."""
        other = self._spec.input(side.other)
        columns = self._fetched(side.other)
        before: int | None = None
        if other.shared:
            meets_all = side in self._runs or side is JoinSide.LEFT
            before = self._context.limit if meets_all else self._context.before
        if (groups := self._groups.get(side.other)) is not None:
            yield from groups.probe(keys, columns, slice_rows)
        else:
            trace = self._context.trace(other.arrangement)
            yield from trace.probe(keys, columns=columns, before=before, slice_rows=slice_rows)
        if side in self._runs and side.other in self._runs:
            layout, segments = self._layouts[side.other], self._runs[side.other].segments()
            yield from probe(keys, segments, layout, columns=columns, slice_rows=slice_rows)

    def _fetched(self, side: JoinSide) -> list[int]:
        """File positions of a side's output columns, time and diff."""
        layout = self._layouts[side]
        return [*(1 + c for c in self._spec.input(side).output_columns), layout.time, layout.weights[0]]

    def _joined(self, side: JoinSide, rows: Any, hits: Hits) -> Updates:
        own = take([rows.column(i) for i in self._fetched(side)], hits.delta)
        met = hits.stored.columns
        left, right = (own, met) if side is JoinSide.LEFT else (met, own)
        time = np.maximum(_ints(left[-2]), _ints(right[-2]))
        return make_updates([*left[:-2], *right[:-2]], time, multiply_diffs(_ints(left[-1]), _ints(right[-1])))


def _layout(context: StepContext, read: JoinInput) -> Layout:
    """The layout of a side's rows."""
    return context.manifest(read.arrangement).layout if read.groups is None else read.groups.layout


def pairs_at_once(own: Sequence[Array], rows: int, context: StepContext) -> int:
    """The number of matches to fetch together if each is as wide as the widest of these rows."""
    return rows_that_fit(1, int(row_bytes(own, rows).max(initial=0)), context.chunk_rows)


def multiply_diffs(a: Ints, b: Ints) -> Ints:
    """The products of diffs. Raises DiffOverflow where one leaves 64 bits, or comes within rounding of that."""
    largest = np.abs(a.astype(np.float64) * b.astype(np.float64)).max(initial=0.0)
    if largest >= 2.0**63 * (1 - 1e-15):
        raise DiffOverflow("the product of two multiplicities in a join left the range of 64 bits")
    return a * b


def _ints(column: Array) -> Ints:
    return np.asarray(column.to_numpy())


def _check_keys(layouts: dict[JoinSide, Layout]) -> None:
    left, right = ([layout.types[k] for k in layout.key] for layout in layouts.values())
    if left != right:
        raise ValueError(f"a join's keys must have the same types: left has {_names(left)}, right {_names(right)}")


def _names(types: Sequence[pa.DataType]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def check_shared(context: StepContext, arrangement: ArrangementId) -> None:
    """Raise OutOfFrontier unless a shared arrangement holds this step's updates, each with its own time."""
    manifest = context.manifest(arrangement)
    since_bound = context.lower if context.is_hydration else context.lower - 1
    if manifest.upper < context.limit or manifest.since > max(since_bound, 0):
        raise OutOfFrontier(
            f"a join over [{context.lower}, {context.limit}) reads arrangement {arrangement}, which is readable in "
            f"[{manifest.since}, {manifest.upper})"
        )
