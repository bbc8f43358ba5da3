"""Table functions: a copy of each row per value of the function, beside that value.

    out = (copied columns of row, value), for each row of in and each value of f(row)

    (1, [7, 8]) 5 +1                  (1, 7) 5 +1
    (2, [])     5 +1    explode       (1, 8) 5 +1
    (3, [9])    6 -1    ───────>      (3, 9) 6 -1

State: none. Cost of an update: the output. Memory: one chunk of output, however many values a row has: at most the
step's `chunk_rows` rows, and about `CHUNK_BYTES` bytes of copied columns. A consumer can stop after any chunk.

A row for which the function fails becomes an errs row. Errs rows of the input pass through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.columns import any_null, fixed, take, validity
from tidemark_replica.arrangement.rows.nested_columns import elements, row_bytes
from tidemark_replica.arrangement.rows.updates import (
    Array,
    Bools,
    Ints,
    Updates,
    as_error_rows,
    diffs,
    errors,
    make_updates,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.arrangement.step import StepContext

CHUNK_BYTES = 1 << 26


@dataclass(frozen=True)
class FlatMapSpec:
    """The function over the input's columns `arguments`; its values follow the columns `copied_columns`.

    A type in `copied_columns` stands for a column that no operator reads: it is NULL. `carried`: so many
    of the input's last columns come last.
    """

    function: str
    arguments: tuple[int, ...]
    copied_columns: tuple[int | pa.DataType, ...]
    produced: pa.DataType
    with_position: bool
    outer: bool
    illegal: str
    too_many: str
    most: int
    """The most values of a sequence. `illegal` and `too_many` are the `__error` texts of rows that break the rules."""
    carried: int = 0


class TableFunctionValues(Protocol):
    """The values of a table function for each row of a batch."""

    @property
    def counts(self) -> Ints: ...
    @property
    def failed(self) -> dict[str, Bools]:
        """A mask of rows by the `__error` text that they fail with."""

    def take(self, rows: Ints, places: Ints) -> Array:
        """The value at position `places[i]` of row `rows[i]`; NULL for a position at or beyond the row's count."""


def flat_map(context: StepContext, spec: FlatMapSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Yield the rows with their values."""
    for batch in updates:
        oks, errs = split_errors(batch)
        types = _output_types(batch, spec)
        if errs.num_rows:
            yield as_error_rows(errs, types)
        if oks.num_rows:
            columns = row_columns(oks)
            values = _FUNCTIONS[spec.function]([columns[c] for c in spec.arguments], spec)
            yield from _failures(oks, values, types)
            yield from _expanded(context, spec, oks, values)


def _output_types(batch: Updates, spec: FlatMapSpec) -> list[pa.DataType]:
    types = [k if isinstance(k, pa.DataType) else batch.column(k).type for k in spec.copied_columns]
    types += [pa.int32()] * spec.with_position
    end = batch.num_columns - 3
    return [*types, spec.produced, *(batch.column(c).type for c in range(end - spec.carried, end))]


def _failures(oks: Updates, values: TableFunctionValues, types: Sequence[pa.DataType]) -> Iterator[Updates]:
    for error, failed in values.failed.items():
        rows = np.flatnonzero(failed)
        if len(rows):
            nothing = [pa.nulls(len(rows), t) for t in types]
            texts = pa.array([error], pa.string()).take(pa.array(np.zeros(len(rows), np.int64)))
            yield make_updates(nothing, times(oks)[rows], diffs(oks)[rows], texts)


def _expanded(context: StepContext, spec: FlatMapSpec, oks: Updates, values: TableFunctionValues) -> Iterator[Updates]:
    counts = values.counts
    if spec.outer:
        failed = np.zeros(len(counts), np.bool_)
        for those in values.failed.values():
            failed |= those
        counts = np.where(failed, 0, np.maximum(counts, 1))
    columns = row_columns(oks)
    copied = [columns[k] for k in spec.copied_columns if isinstance(k, int)] + columns[len(columns) - spec.carried :]
    for rows, places in chunks(counts, row_bytes(copied, len(counts)), context.chunk_rows):
        yield _chunk(spec, oks, columns, values, rows, places)


def _chunk(
    spec: FlatMapSpec, oks: Updates, columns: Sequence[Array], values: TableFunctionValues, rows: Ints, places: Ints
) -> Updates:
    made = [
        pa.nulls(len(rows), k) if isinstance(k, pa.DataType) else take([columns[k]], rows)[0]
        for k in spec.copied_columns
    ]
    if spec.with_position:
        made.append(pa.array(places, pa.int32(), mask=places >= values.counts[rows]))
    made.append(values.take(rows, places))
    if spec.carried:
        made += take(columns[-spec.carried :], rows)
    return make_updates(made, times(oks)[rows], diffs(oks)[rows], errors(oks).take(pa.array(rows)))


def chunks(counts: Ints, sizes: Ints, most: int) -> Iterator[tuple[Ints, Ints]]:
    """(row, position) of all values in order: at most `most` at a time, copying about `CHUNK_BYTES` of rows.

    `counts`: values per row. `sizes`: bytes per copied row.
    """
    ends = np.cumsum(counts)
    begins, total = ends - counts, int(ends[-1]) if len(ends) else 0
    weights = np.maximum(sizes, 1).astype(np.float64)
    heavy = np.cumsum(counts * weights)
    at = 0
    while at < total:
        row = int(np.searchsorted(ends, at, "right"))
        limit = heavy[row] - (ends[row] - at) * weights[row] + CHUNK_BYTES
        last = min(int(np.searchsorted(heavy, limit, "left")), len(ends) - 1)
        by_bytes = int(ends[last]) - int(max(heavy[last] - limit, 0.0) // weights[last])
        end = min(total, at + most, max(by_bytes, at + 1))
        index = np.arange(at, end)
        rows = np.searchsorted(ends, index, "right")
        yield rows, index - begins[rows]
        at = end


class _Elements:
    """explode: the elements of an array."""

    def __init__(self, arguments: Sequence[Array], spec: FlatMapSpec) -> None:
        self.failed: dict[str, Bools] = {}
        self._starts, self.counts, self._inside = elements(arguments[0])

    def take(self, rows: Ints, places: Ints) -> Array:
        beyond = places >= self.counts[rows]
        return self._inside.take(pa.array(self._starts[rows] + places, mask=beyond))


class _Steps:
    """sequence: from start by step to stop, both included; the step is 1 towards stop by default."""

    def __init__(self, arguments: Sequence[Array], spec: FlatMapSpec) -> None:
        start, stop = (_integers(a) for a in arguments[:2])
        step = _integers(arguments[2]) if len(arguments) > 2 else np.where(start <= stop, 1, -1)
        missing = any_null(arguments, len(start))
        there = np.ones(len(start), np.bool_) if missing is None else ~missing
        illegal = there & np.where(step > 0, start > stop, np.where(step < 0, start < stop, start != stop))
        steps = _distance(start, stop) // np.maximum(_magnitude(step), np.uint64(1))
        too_many = there & ~illegal & (steps >= np.uint64(spec.most))
        self.failed = {spec.illegal: illegal, spec.too_many: too_many}
        fine = there & ~illegal & ~too_many
        self.counts = np.where(fine, steps, np.uint64(0)).astype(np.int64) + fine
        self._start, self._step, self._type = start, step, spec.produced

    def take(self, rows: Ints, places: Ints) -> Array:
        values = self._start[rows] + places * self._step[rows]
        made = pa.array(values, mask=places >= self.counts[rows])
        return made.cast(pa.int32()).cast(self._type) if self._type == pa.date32() else made.cast(self._type)


def _integers(column: Array) -> Ints:
    """The values as int64, 0 for NULL: the bytes under a NULL are undefined."""
    values, valid = fixed(column).astype(np.int64), validity(column)
    return values if valid is None else np.where(valid, values, 0)


def _distance(start: Ints, stop: Ints) -> np.ndarray:
    low, high = np.minimum(start, stop), np.maximum(start, stop)
    return high.view(np.uint64) - low.view(np.uint64)


def _magnitude(step: Ints) -> np.ndarray:
    """The absolute value as uint64, which also holds that of the least int64."""
    bits = step.view(np.uint64)
    return np.where(step < 0, ~bits + np.uint64(1), bits)


_FUNCTIONS: dict[str, Callable[[Sequence[Array], FlatMapSpec], TableFunctionValues]] = {
    "explode": _Elements,
    "sequence": _Steps,
}
