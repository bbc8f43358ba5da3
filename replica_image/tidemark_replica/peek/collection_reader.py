"""Reads the contents of a collection at a time through a MapFilterProject.

    IndexAt | ShardAt ──> consolidated contents ──mfp──> finish ──> rows, each repeated by its multiplicity

Where the Arrow evaluator knows all expressions, the files are read in this process without a Spark job; a literal key
reads only rows of that key. Otherwise one Spark job computes it: a leaf, Catalyst, and `finish` in a task. A collection
that holds an error returns the error instead of rows, whatever the peek asks for; so does one with a negative
multiplicity. Rows come in batches while they are read, and an error may follow some of them; then those rows are not
the answer.

The peek bounds the size of its answer. An answer that must be in memory at once has a smaller bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_persist import open_shard
from tidemark_protocol.check.nodes import fits
from tidemark_protocol.check.plan import check_mfp
from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.messages.commands import Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import MapFilterProject, OrderKey, Schema
from tidemark_protocol.types import Column, ColumnType
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.columns import canonical_rows
from tidemark_replica.arrangement.rows.updates import Updates, diffs, errors, make_updates, row_columns, update_schema
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.evaluator import admits, evaluation
from tidemark_replica.peek.result_finishing import sorted_indices
from tidemark_replica.render.errors import ResultTooLarge, ViewInError
from tidemark_replica.render.expressions import catalyst
from tidemark_replica.render.expressions.mfp import compile_mfp, projection_of
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.render.plan.lowering_stream import arrow_types
from tidemark_replica.values.arrow_types import arrow_schema, arrow_type
from tidemark_replica.values.error_text import readable_error
from tidemark_replica.values.literals import literal_value
from tidemark_replica.values.row_repeat import repeated

TOO_LARGE = "RESULT_TOO_LARGE"
NEGATIVE = "NEGATIVE_MULTIPLICITY"
BATCH_ROWS = 65_536
SORTED_BYTES_MAX = 256 * 1024 * 1024
JOB_BYTES_MAX = 128 * 1024 * 1024
Contents = Callable[[], Iterator[Updates]]


@dataclass(frozen=True)
class IndexAt:
    """The contents of an index at `as_of`, errors before rows. `keys`: only rows of these keys."""

    manifest: Manifest
    directory: Path
    as_of: int
    keys: tuple[tuple[Literal, ...], ...] | None = None

    def __call__(self) -> Iterator[Updates]:
        """Runs in a Spark task, which opens the files itself."""
        return self.through(BatchCache(self.directory))

    def through(self, batches: BatchCache) -> Iterator[Updates]:
        trace = Trace(self.manifest, batches)
        yield trace.errors_at(self.as_of)
        if self.keys is None:
            yield from trace.rows_at(self.as_of)
        elif self.keys:
            yield trace.lookup(self._key_columns(), self.as_of)

    def _key_columns(self) -> list[Any]:
        types = [self.manifest.layout.types[k] for k in self.manifest.layout.key]
        distinct = list(dict.fromkeys(self.keys or ()))
        return [pa.array([literal_value(key[i]) for key in distinct], t) for i, t in enumerate(types)]


@dataclass(frozen=True)
class ShardAt:
    """The contents of a shard at `as_of`."""

    location: str
    columns: tuple[Column, ...]
    as_of: int

    def __call__(self) -> Iterator[Updates]:
        schema = update_schema(arrow_type(c.type) for c in self.columns)
        snapshot = open_shard(self.location).snapshot(self.as_of)
        for batch in snapshot.to_batches(BATCH_ROWS):
            columns = [batch.column(c.name).cast(schema.types[i]) for i, c in enumerate(self.columns)]
            at = np.full(batch.num_rows, self.as_of, np.int64)
            diff = np.asarray(batch.column("__diff").to_numpy())
            yield canonical_rows(make_updates(columns, at, diff, batch.column("__error")))


@dataclass(frozen=True)
class ReadContext:
    """How to read: a session for peeks that need a Spark job, the bound of an answer in bytes, open batches, and
    whether the Arrow evaluator computes the expressions that it knows."""

    session: Callable[[], Any]
    max_bytes: int
    batches: BatchCache | None = None
    arrow: bool = True


def read_index(reading: ReadContext, index: IndexTrace, peek: Peek) -> Generator[Any, None, None]:
    """The rows of an index, before order and offset. The index is pinned until the end of the iteration, or `close`.
    Raises ViewInError, ResultTooLarge, OutOfFrontier."""
    with index.store.pin(index.arrangement) as pinned:
        manifest = pinned[index.arrangement]
        manifest.check_readable(peek.timestamp)
        source = IndexAt(manifest, index.store.directory, peek.timestamp, peek.literals)
        here = source if reading.batches is None else partial(source.through, reading.batches)
        yield from _read(reading, source, here, _schema(index.columns), peek)


def read_shard(reading: ReadContext, shard: ShardMetadata, peek: Peek) -> Generator[Any, None, None]:
    """The rows of a shard, before order and offset. Raises ViewInError, ResultTooLarge, NotReadable."""
    source = ShardAt(shard.location, shard.columns, peek.timestamp)
    return _read(reading, source, source, shard.schema, peek)


def _read(
    reading: ReadContext, source: Contents, here: Contents, schema: Schema, peek: Peek
) -> Generator[Any, None, None]:
    """`here`: the same contents as `source`, to be read in this process."""
    _check(schema, peek)
    columns = projection_of(peek.mfp)
    by_job = columns is None and not (reading.arrow and admits(peek.mfp))
    bound = _bound(reading.max_bytes, by_job, bool(peek.finishing.order))
    finish = _finish_of(peek.finishing, bound.bytes)
    if by_job:
        batches = _by_job(reading.session(), source, peek.mfp, finish)
    elif columns is None:
        batches = finish(map(evaluation(peek.mfp), here()))
    else:
        batches = finish(_projected(here(), columns))
    yield from _answer(batches, peek.columns, bound)


@dataclass(frozen=True)
class Bound:
    """The largest size of an answer. `but`: what the user can do besides asking for less."""

    bytes: int
    but: str


def _bound(asked: int, by_job: bool, ordered: bool) -> Bound:
    bounds = [Bound(asked, "raise spec.maxResultSize")]
    if by_job:
        bounds.append(Bound(JOB_BYTES_MAX, "compute its expressions in a view: in a query they need Spark"))
    if ordered:
        bounds.append(Bound(SORTED_BYTES_MAX, "leave ORDER BY to the client: the replica sorts in memory"))
    return min(bounds, key=lambda bound: bound.bytes)


def _finish_of(finishing: Finishing, max_bytes: int) -> Finish | FinishTop:
    if finishing.limit is None:
        return Finish(max_bytes)
    wanted = finishing.limit + finishing.offset
    return FinishTop(max_bytes, wanted, finishing.order) if finishing.order else Finish(max_bytes, wanted)


def _check(schema: Schema, peek: Peek) -> None:
    """Raises PlanNotAllowed unless the peek fits the collection: a client may send any peek."""
    check_mfp(peek.mfp)
    if not fits(schema, peek.mfp.input) or [c.type for c in peek.columns] != [c.type for c in peek.mfp.output]:
        raise PlanNotAllowed(f"peek {peek.uuid} reads other columns than {peek.target.id} has")
    if peek.mfp.lower or peek.mfp.upper:
        raise PlanNotAllowed(f"peek {peek.uuid} has a temporal filter")


def _by_job(session: Any, source: Any, mfp: MapFilterProject, finish: Finish | FinishTop) -> Iterator[Any]:
    leaf = session.range(0, 1, 1, 1).mapInArrow(partial(_leaf, source), catalyst.spark_schema(mfp.input))
    filtered = catalyst.apply(leaf, compile_mfp(mfp))
    columns = ", ".join([*(f"c{i} {c.type}" for i, c in enumerate(mfp.output)), "__error string"])
    stage = partial(_finish, finish, arrow_types(mfp.output))
    yield from filtered.mapInArrow(stage, columns).toArrow().to_batches()


def _leaf(source: Callable[[], Iterator[Updates]], rows: Iterable[Any]) -> Iterator[Updates]:
    for _ in rows:
        yield from source()


def _finish(finish: Finish | FinishTop, types: Sequence[pa.DataType], rows: Iterable[Any]) -> Iterator[Any]:
    schema = update_schema(types)
    return finish(pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)


@dataclass(frozen=True)
class Finish:
    """Turns contents into rows `c0 ... cn-1, __error`. A row with `__error` replaces all others."""

    max_bytes: int
    limit: int | None = None

    def __call__(self, contents: Iterable[Updates]) -> Iterator[Any]:
        size, rows = 0, 0
        for batch in contents:
            if error := first_error(batch):
                yield _error_row(batch, error)
                return
            counts = diffs(batch)
            if self.limit is not None:
                counts = _at_most(counts, self.limit - rows)
            size += _bytes(batch, counts)
            if size > self.max_bytes:
                yield _error_row(batch, json.dumps({"code": TOO_LARGE}))
                return
            rows += int(counts.sum())
            yield from map(_rows, repeated(batch, counts))


@dataclass(frozen=True)
class FinishTop:
    """The first `wanted` rows in order. Rows that cannot be among them are dropped as they come.

    A row with a multiplicity above one is kept once until the answer is made.
    """

    max_bytes: int
    wanted: int
    order: tuple[OrderKey, ...]

    def __call__(self, contents: Iterable[Updates]) -> Iterator[Any]:
        kept: list[Updates] = []
        for batch in contents:
            if error := first_error(batch):
                yield _error_row(batch, error)
                return
            kept.append(batch)
            size = sum(rows.nbytes for rows in kept)
            if size > 3 * self.max_bytes or sum(rows.num_rows for rows in kept) > 2 * self.wanted + BATCH_ROWS:
                kept = self._first(kept)
                if sum(rows.nbytes for rows in kept) > 2 * self.max_bytes:
                    yield _error_row(batch, json.dumps({"code": TOO_LARGE}))
                    return
        yield from Finish(self.max_bytes, self.wanted)(self._first(kept))

    def _first(self, kept: Sequence[Updates]) -> list[Updates]:
        """The rows in order, up to the one that reaches `wanted`."""
        if not kept:
            return []
        updates = pa.Table.from_batches(kept)
        rows = updates.select([*range(updates.num_columns - 3)])
        found = updates.take(sorted_indices(rows, self.order)).combine_chunks()
        counts = found.column("__diff").to_numpy()
        ends = np.cumsum(counts, dtype=np.float64)
        return list(found.slice(0, int(np.searchsorted(ends, self.wanted, "left")) + 1).to_batches())


def first_error(batch: Updates) -> str | None:
    """The error of a batch: an error row, or a negative multiplicity; None if there is none."""
    found, counts = errors(batch), diffs(batch)
    for position in np.flatnonzero((counts != 0) & np.asarray(found.is_valid().to_numpy(zero_copy_only=False))):
        return str(found[int(position)].as_py())
    return json.dumps({"code": NEGATIVE}) if (counts < 0).any() else None


def _at_most(counts: Any, left: int) -> Any:
    """The multiplicities of the first `left` rows."""
    before = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)[:-1]])  # sums may be beyond 64 bits
    return np.clip(left - before, 0, counts).astype(np.int64)


def _bytes(batch: Updates, counts: Any) -> int:
    """Approximate bytes of the repeated rows."""
    return int(batch.nbytes * (counts.sum(dtype=np.float64) / max(batch.num_rows, 1)))


def _rows(batch: Updates) -> Any:
    columns = [*row_columns(batch), errors(batch)]
    names = [*(f"c{i}" for i in range(len(columns) - 1)), "__error"]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _error_row(batch: Updates, error: str) -> Any:
    columns = [pa.nulls(1, c.type) for c in row_columns(batch)]
    zero = np.zeros(1, np.int64)
    return _rows(make_updates(columns, zero, zero, pa.array([error])))


def _projected(contents: Iterable[Updates], columns: Sequence[int]) -> Iterator[Updates]:
    for batch in contents:
        row = row_columns(batch)
        at = np.asarray(batch.column(len(row)).to_numpy())
        yield make_updates([row[c] for c in columns], at, diffs(batch), errors(batch))


def _answer(batches: Iterable[Any], columns: Sequence[Column], bound: Bound) -> Iterator[Any]:
    """The rows with the peek's column names. Raises the error that replaces them."""
    schema = arrow_schema(columns)
    for batch in batches:
        found = batch.column(batch.num_columns - 1)
        if found.null_count < len(found):
            raise _error(str(found.drop_null()[0].as_py()), bound)
        arrays = [c.cast(t) for c, t in zip(batch.columns[:-1], schema.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _error(error: str, bound: Bound) -> ViewInError | ResultTooLarge:
    if json.loads(error)["code"] == TOO_LARGE:
        return ResultTooLarge(f"result exceeds max size of {bound.bytes} bytes: filter it, limit it, or {bound.but}")
    return ViewInError(f"the result is in error: {readable_error(error)}")


def _schema(columns: Sequence[Column]) -> Schema:
    return tuple(ColumnType(c.type, c.nullable) for c in columns)
