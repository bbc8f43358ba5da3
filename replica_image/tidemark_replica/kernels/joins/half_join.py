"""Half-joins: the updates of one input, joined with the earlier updates of another input.

    out = {(u ++ v) : u in the stream, v in the input looked up, equal keys, v before u}

    path of input 1:    update (t, 1)  ──lookup in input 0──>  rows at t' <  t
                                       ──lookup in input 2──>  rows at t' <= t

Updates are ordered by time, and at one time by input, the updates of the first input being last. An update matches the
updates before it. Of several updates that join, exactly one is the last, and on its path it matches all others. So
every combination is matched exactly once, however updates are cut into steps. The result has the stream's time, which
is the latest (the half-join operator of differential dataflow).

A lookup reads the join's own arrangement with this step's runs, or a *shared* arrangement, whose upper may be beyond
the step. At hydration all contents have the time as_of. Of those only the first input's updates come after all others,
and `delta_join` follows no other path.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemark_replica.arrangement.batches.key_lookup import Hits, Keys, probe
from tidemark_replica.arrangement.rows.columns import any_null, take
from tidemark_replica.arrangement.rows.updates import Array, Ints, Updates, diffs, make_updates, row_columns, times
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.joins.join import check_shared, multiply_diffs, pairs_at_once


@dataclass(frozen=True)
class ArrangementLookup:
    """The input that is looked up, the arrangement of it, and the key columns of the stream."""

    input: int
    arrangement: ArrangementId
    stream_key: tuple[int, ...]
    """Columns of the stream, in the order of the arrangement's key."""
    output: tuple[int, ...]
    """Output columns: those of the stream, then (counting on) those of the arrangement."""
    null_safe: tuple[int, ...] = ()
    """Key positions at which NULL equals NULL."""
    shared: bool = False
    """Whether another operator, or another dataflow, keeps the arrangement, complete up to the step's limit."""


class HalfJoin:
    """One lookup during one step, on the path of the input `source`."""

    def __init__(
        self, context: StepContext, source: int, lookup: ArrangementLookup, runs: Mapping[ArrangementId, StepRuns]
    ) -> None:
        self._context, self._source, self._lookup = context, source, lookup
        self._trace = context.trace(lookup.arrangement)
        self._runs = runs.get(lookup.arrangement)
        if lookup.shared:
            check_shared(context, lookup.arrangement)

    def feed(self, stream: Iterable[Updates]) -> Iterator[Updates]:
        """Yield the matches of the stream's ok rows."""
        for chunk in stream:
            columns = row_columns(chunk)
            keys = _keys(take_all(columns, self._lookup.stream_key), chunk.num_rows, self._lookup.null_safe)
            own = take_all(columns, [c for c in self._lookup.output if c < len(columns)])
            for hits in self._meet(keys, len(columns), pairs_at_once(own, chunk.num_rows, self._context)):
                yield from self._joined(chunk, columns, hits)

    def _meet(self, keys: Keys, width: int, rows: int) -> Iterator[Hits]:
        layout = self._trace.layout
        columns = [*(1 + c - width for c in self._lookup.output if c >= width), layout.time, layout.weights[0]]
        before = self._context.limit if self._lookup.shared else None
        yield from self._trace.probe(keys, columns=columns, before=before, slice_rows=rows)
        if self._runs is not None:
            yield from probe(keys, self._runs.segments(), layout, columns=columns, slice_rows=rows)

    def _joined(self, chunk: Updates, columns: list[Array], hits: Hits) -> Iterator[Updates]:
        *met, met_at, met_diff = hits.stored.columns
        delta, at, met_diffs = hits.delta, times(chunk)[hits.delta], np.asarray(met_diff.to_numpy())
        earlier = self._is_earlier(np.asarray(met_at.to_numpy()), at)
        if not earlier.all():
            good = np.flatnonzero(earlier)
            if len(good) == 0:
                return
            met, delta, at, met_diffs = take(met, good), delta[good], at[good], met_diffs[good]
        width = len(columns)
        looked_up, own = iter(met), iter(take([columns[c] for c in self._lookup.output if c < width], delta))
        out = [next(own) if c < width else next(looked_up) for c in self._lookup.output]
        yield make_updates(out, at, multiply_diffs(diffs(chunk)[delta], met_diffs))

    def _is_earlier(self, met: Ints, own: Ints) -> Any:
        """Whether matched updates come before the stream's: by time, at one time by input."""
        return met <= own if self._lookup.input > self._source else met < own


def take_all(columns: Sequence[Array], positions: Iterable[int]) -> list[Array]:
    return [columns[p] for p in positions]


def _keys(columns: list[Array], rows: int, null_safe: tuple[int, ...]) -> Keys:
    """The keys of a chunk, without those with a NULL at a position that is not null-safe."""
    strict = [c for position, c in enumerate(columns) if position not in null_safe]
    barred = any_null(strict, rows)
    if barred is None:
        return Keys.of(columns, rows)
    able = np.flatnonzero(~barred)
    keys = Keys.of(take(columns, able), len(able))
    return Keys(keys.hashes, keys.columns, able[keys.rows])
