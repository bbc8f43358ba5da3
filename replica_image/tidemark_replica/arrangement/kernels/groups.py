"""Groups evaluated again: any function of a group's whole contents, kept right at every time.

    rows by key ──+ delta at 5 ──+ delta at 7──>  versions {..} {..} {..}  ──f──>  rows of each version
                                                                                 │ differences, each at its time
                                                                                 v
                                                                       (a, "x,y") 5 -1, (a, "x,y,y") 5 +1, ...

State: the input's rows, arranged by the key. Cost: for every group that the delta touches its size times the number of
times at which it is touched; groups that nobody touched cost nothing. Memory: a range of groups at a time, of about
`RANGE_ENTRIES` entries; a single larger group goes through its times piece by piece, but one version of it must fit.

Errs rows pass through. A version with a row of negative multiplicity, or in which `f` fails, is an errs row in the
place of its rows. With `always` (aggregates without a key) the only group has its row also when it is empty, from the
as_of on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.columns import take
from tidemark_replica.arrangement.consolidate import consolidate
from tidemark_replica.arrangement.errors import MalformedUpdates
from tidemark_replica.arrangement.hashing import bucket_of, key_hashes
from tidemark_replica.arrangement.kernels.aggregates import NEGATIVE
from tidemark_replica.arrangement.kernels.arrange import sorted_rows
from tidemark_replica.arrangement.kernels.evaluate import first_failure
from tidemark_replica.arrangement.kernels.intake import take_in
from tidemark_replica.arrangement.kernels.touched import RANGE_ENTRIES, Piece, Touched, pieces
from tidemark_replica.arrangement.kernels.versions import Versions, versions_of
from tidemark_replica.arrangement.layout import Layout
from tidemark_replica.arrangement.manifest import ArrangementId
from tidemark_replica.arrangement.probe import Keys
from tidemark_replica.arrangement.runs import StepRuns
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.trace import Trace
from tidemark_replica.arrangement.updates import (
    Array,
    Bools,
    Ints,
    Updates,
    make_updates,
    rechunk,
)

RANGE_ROWS = 1 << 16
"""How many rows of a step's delta are looked at together."""

_ROWS = "count(*)"


@dataclass(frozen=True, slots=True)
class Produced:
    """What a function makes of versions: rows, each of a version, and where which error takes their place."""

    version: Ints
    columns: list[Array]
    diffs: Ints
    failures: tuple[tuple[str, str, Bools], ...] = ()
    """(code, expression, in which versions)"""


class GroupFunction(Protocol):
    """A function of a group's contents: the same multiset always gives the same rows."""

    @property
    def output_types(self) -> Sequence[pa.DataType]:
        """The types of the rows it makes."""

    def __call__(self, versions: Versions) -> Produced:
        """The rows of every version; what it says of versions without entries counts with `always` only."""


@dataclass(frozen=True)
class GroupsSpec:
    """What to compute, and the arrangement (of rows, by the group's key) that holds the groups."""

    state: ArrangementId
    layout: Layout
    function: GroupFunction
    always: bool = False


def reevaluate(context: StepContext, spec: GroupsSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Apply the function to every group."""
    if context.manifest(spec.state).layout != spec.layout:
        raise MalformedUpdates(f"arrangement {spec.state} does not hold the groups of this operator")
    runs = StepRuns(context, spec.state)
    arranged = partial(_arrange, runs, spec.layout)
    yield from take_in(context, updates, spec.layout.types, spec.function.output_types, arranged)
    for _, packed in rechunk(((None, out) for out in _evaluated(context, spec, runs)), context.chunk_rows):
        yield packed
    runs.commit()


def _arrange(runs: StepRuns, layout: Layout, oks: Updates) -> None:
    rows = consolidate(oks)
    if rows.num_rows:
        runs.add(sorted_rows(rows, layout))


def _evaluated(context: StepContext, spec: GroupsSpec, runs: StepRuns) -> Iterator[Updates]:
    trace = context.trace(spec.state)
    appears = spec.always and context.is_hydration and _owns_the_only_group(context, spec)
    ranges = runs.consolidated(RANGE_ROWS)
    if appears:
        empty = pa.RecordBatch.from_arrays(
            [pa.array([], t) for t in spec.layout.schema.types], schema=spec.layout.schema
        )
        ranges = iter([pa.concat_batches([empty, *ranges])])
    for rows in ranges:
        touched = Touched.of(rows, spec.layout, context.lower if appears else None)
        for piece in pieces(touched, trace, RANGE_ENTRIES):
            yield _changes(context, spec, touched, piece, trace)


def _owns_the_only_group(context: StepContext, spec: GroupsSpec) -> bool:
    buckets = context.manifest(spec.state).buckets
    return context.owns_bucket(int(bucket_of(key_hashes([], 1), buckets)[0]))


def _changes(context: StepContext, spec: GroupsSpec, touched: Touched, piece: Piece, trace: Trace) -> Updates:
    """What a piece's groups show otherwise than before, time by time."""
    columns, group, version, diffs = _contents(touched, piece, trace)
    versions, negative = versions_of(columns, group, version, diffs, piece.group_of_version)
    produced = spec.function(versions)
    exists = np.full(versions.size, True) if spec.always else (versions.lengths > 0) | negative
    if context.is_hydration and piece.begins_with_state:
        exists &= ~piece.is_first
    error, texts = first_failure([(NEGATIVE, _ROWS, negative), *produced.failures], versions.size)
    error[~exists] = 0
    shown = np.flatnonzero((exists & (error == 0))[produced.version])
    rows = take(produced.columns, shown)
    failing = np.flatnonzero(error)
    nulls = [pa.nulls(len(failing), t) for t in spec.function.output_types]
    codes = pa.array(texts, pa.string()).take(pa.array(error[failing]))
    return consolidate(
        pa.concat_batches(
            [
                *_differences(piece, produced.version[shown], rows, produced.diffs[shown], None),
                *_differences(piece, failing, nulls, np.ones(len(failing), np.int64), codes),
            ]
        )
    )


def _contents(touched: Touched, piece: Piece, trace: Trace) -> tuple[list[Array], Ints, Ints, Ints]:
    """(columns, group, version, diff) of all that is in a piece's groups: the delta's rows and those arranged."""
    layout = touched.layout
    positions = [*range(1, 1 + len(layout.types)), layout.weights[0]]
    delta = touched.rows.select(positions).take(pa.array(piece.rows))
    parts, groups, versions = [delta], [piece.group_of_row], [piece.version_of_row]
    keys = Keys.sorted(
        touched.hashes[piece.groups], take(touched.keys, np.arange(piece.groups.start, piece.groups.stop))
    )
    for hits in trace.probe(keys, columns=positions):
        parts.append(hits.stored)
        groups.append(hits.delta)
        versions.append(piece.first_versions[hits.delta])
    *columns, diffs = (pa.concat_arrays(same) for same in zip(*(p.columns for p in parts), strict=True))
    return columns, np.concatenate(groups), np.concatenate(versions), np.asarray(diffs.to_numpy())


def _differences(
    piece: Piece, version: Ints, columns: list[Array], diffs: Ints, errors: Array | None
) -> Iterator[Updates]:
    """Rows of versions as updates: there from the version's time on, gone with the next version of its group."""
    begins, ends = np.flatnonzero(~piece.is_first[version]), np.flatnonzero(~piece.is_last[version])
    for chosen, times, sign in ((begins, piece.time[version[begins]], 1), (ends, piece.time[version[ends] + 1], -1)):
        some = None if errors is None else errors.take(pa.array(chosen))
        yield make_updates(take(columns, chosen), times, sign * diffs[chosen], some)
