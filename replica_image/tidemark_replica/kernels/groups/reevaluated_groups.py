"""Reevaluated groups: any function of a group's whole contents, evaluated at every time at which the group changes.

    out[t](k) = f(in[t](k))

    rows by key ──+ delta at 5 ──+ delta at 7──>  versions {..} {..} {..}  ──f──>  rows of each version
                                                                                     │ differences, each at its time
                                                                                     v
                                                                           (a, "x,y") 5 -1, (a, "x,y,y") 5 +1, ...

State: the input, arranged by the key. Cost of an update: for every touched group, its size times the number of times at
which it is touched. Memory: one range of groups, of about `RANGE_ENTRIES` entries and `PIECE_BYTES` bytes. A larger
group goes through its times piece by piece, but one version of it must fit.

Errs rows pass through. A version with a negative multiplicity, or for which `f` fails or makes too much, is one errs
row in place of its rows. With `always` (aggregates without a key) the only group has its row from the as_of on, also
when it is empty.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.errors import MalformedUpdates
from tidemark_replica.arrangement.rows.columns import take
from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints, Updates, make_updates, rechunk
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.kernels.groups.group_versions import GroupVersions, VersionsTooLarge, group_versions
from tidemark_replica.kernels.groups.touched_groups import RANGE_ENTRIES, GroupPiece, TouchedGroups, divide_groups
from tidemark_replica.kernels.kernel_input import consume_oks
from tidemark_replica.kernels.reduce.accumulator_output import first_failure
from tidemark_replica.kernels.reduce.aggregates import NEGATIVE

RANGE_ROWS = 1 << 16
"""Rows of a step's delta that are read together."""

PIECE_BYTES = 1 << 28
"""Bytes of all versions of a piece, unless the piece is one group at one time."""

TOO_LARGE = "RESULT_TOO_LARGE"
_ROWS = "count(*)"


@dataclass(frozen=True, slots=True)
class GroupOutput:
    """The output of a function for versions: rows, the version of each, and the versions that fail."""

    version: Ints
    columns: list[Array]
    diffs: Ints
    failures: tuple[tuple[str, str, Bools], ...] = ()
    """(code, expression, mask of versions)"""


class GroupFunction(Protocol):
    """A function of a group's contents. Equal multisets give equal rows."""

    @property
    def output_types(self) -> Sequence[pa.DataType]:
        """The types of the output columns."""

    def __call__(self, versions: GroupVersions) -> GroupOutput:
        """Return the rows of every version. Rows of versions without entries count with `always` only.

        Raises VersionsTooLarge: the kernel then calls again with fewer versions. For one version it is an error row.
        """


@dataclass(frozen=True)
class ReevaluatedGroupsSpec:
    """The function, and the arrangement of the input by the group's key."""

    state: ArrangementId
    layout: Layout
    function: GroupFunction
    always: bool = False


def reevaluate_groups(
    context: StepContext, spec: ReevaluatedGroupsSpec, updates: Iterable[Updates]
) -> Iterator[Updates]:
    """Yield the changes of the function's rows over all groups. Raises MalformedUpdates for another arrangement."""
    if context.manifest(spec.state).layout != spec.layout:
        raise MalformedUpdates(f"arrangement {spec.state} does not hold the groups of this operator")
    runs = StepRuns(context, spec.state)
    arranged = partial(_arrange, runs, spec.layout)
    yield from consume_oks(context, updates, spec.layout.types, spec.function.output_types, arranged)
    for _, packed in rechunk(((None, out) for out in _evaluated(context, spec, runs)), context.chunk_rows):
        yield packed
    runs.commit_state()


def _arrange(runs: StepRuns, layout: Layout, oks: Updates) -> None:
    rows = consolidate(oks)
    if rows.num_rows:
        runs.add(sorted_rows(rows, layout))


def _evaluated(context: StepContext, spec: ReevaluatedGroupsSpec, runs: StepRuns) -> Iterator[Updates]:
    trace = context.trace(spec.state)
    appears = spec.always and context.is_hydration and context.has_the_only_group
    ranges = runs.consolidated(RANGE_ROWS)
    if appears:
        ranges = iter([pa.concat_batches([spec.layout.empty, *ranges])])
    for rows in ranges:
        touched = TouchedGroups.of(rows, spec.layout, context.lower if appears else None)
        for piece in divide_groups(touched, trace, RANGE_ENTRIES):
            yield from _in_parts(context, spec, piece, trace)


def _in_parts(context: StepContext, spec: ReevaluatedGroupsSpec, piece: GroupPiece, trace: Trace) -> Iterator[Updates]:
    """The output changes of a piece; of a piece that is too large, half by half."""
    try:
        yield _changes(context, spec, piece, trace)
    except VersionsTooLarge:
        for half in piece.halves():
            yield from _in_parts(context, spec, half, trace)


def _changes(context: StepContext, spec: ReevaluatedGroupsSpec, piece: GroupPiece, trace: Trace) -> Updates:
    """The output changes of a piece, time by time."""
    columns, group, version, diffs = _contents(piece, trace)
    versions, negative = group_versions(columns, group, version, diffs, piece.group_of_version)
    produced = _produced(spec.function, versions, piece)
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


def _produced(function: GroupFunction, versions: GroupVersions, piece: GroupPiece) -> GroupOutput:
    try:
        return function(versions)
    except VersionsTooLarge:
        if piece.halves():
            raise
        return _one_by_one(function, versions)


def _one_by_one(function: GroupFunction, versions: GroupVersions) -> GroupOutput:
    """The function's output for each version on its own; an error for a version that is too large."""
    made: list[GroupOutput] = []
    failures: list[tuple[str, str, Bools]] = []
    for number in range(versions.size):
        this = np.arange(versions.size) == number
        try:
            one = function(versions.filter(this[versions.version]))
        except VersionsTooLarge as cause:
            failures.append((TOO_LARGE, cause.expression, this))
            continue
        rows = np.flatnonzero(one.version == number)
        made.append(GroupOutput(one.version[rows], take(one.columns, rows), one.diffs[rows]))
        failures += [(code, expression, where & this) for code, expression, where in one.failures]
    if not made:
        nothing = np.empty(0, np.int64)
        return GroupOutput(nothing, [pa.array([], t) for t in function.output_types], nothing, tuple(failures))
    columns = [pa.concat_arrays(same) for same in zip(*(m.columns for m in made), strict=True)]
    version, diffs = (np.concatenate(same) for same in ([m.version for m in made], [m.diffs for m in made]))
    return GroupOutput(version, columns, diffs, tuple(failures))


def _contents(piece: GroupPiece, trace: Trace) -> tuple[list[Array], Ints, Ints, Ints]:
    """(columns, group, version, diff) of a piece's groups: the delta's rows and the arranged ones."""
    layout, touched = piece.touched.layout, piece.touched
    positions = [*range(1, 1 + len(layout.types)), layout.weights[0]]
    delta = touched.rows.select(positions).take(pa.array(piece.rows))
    parts, groups, versions = [delta], [piece.group_of_row], [piece.version_of_row]
    first, count = piece.groups.start, piece.groups.stop - piece.groups.start
    keys = Keys.sorted(touched.hashes[piece.groups], [k.slice(first, count) for k in touched.keys])
    for hits in trace.probe(keys, columns=positions):
        parts.append(hits.stored)
        groups.append(hits.delta)
        versions.append(piece.first_versions[hits.delta])
    if piece.halves() and sum(p.nbytes for p in parts) * len(piece.is_first) > PIECE_BYTES * count:
        raise VersionsTooLarge(_ROWS)
    *columns, diffs = (pa.concat_arrays(same) for same in zip(*(p.columns for p in parts), strict=True))
    return columns, np.concatenate(groups), np.concatenate(versions), np.asarray(diffs.to_numpy())


def _differences(
    piece: GroupPiece, version: Ints, columns: list[Array], diffs: Ints, errors: Array | None
) -> Iterator[Updates]:
    """Rows of versions as updates: +1 at the version's time, -1 at that of the next version of its group."""
    begins, ends = np.flatnonzero(~piece.is_first[version]), np.flatnonzero(~piece.is_last[version])
    for chosen, times, sign in ((begins, piece.time[version[begins]], 1), (ends, piece.time[version[ends] + 1], -1)):
        some = None if errors is None else errors.take(pa.array(chosen))
        yield make_updates(take(columns, chosen), times, sign * diffs[chosen], some)
