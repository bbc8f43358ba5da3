"""Reads the contents of a collection at a time through a MapFilterProject.

    IndexAt | ShardAt ──> consolidated contents ──mfp──> finish ──> rows, each repeated by its multiplicity

Where the Arrow evaluator knows all expressions, the files are read in this process without a Spark job; a literal key
reads only rows of that key. Otherwise one Spark job computes it: a leaf, Catalyst, and `finish` in a task. A collection
that holds an error returns the error instead of rows, whatever the peek asks for; so does one with a negative
multiplicity among the rows that are read. Rows come in batches while they are read, and an error may follow some of
them; then those rows are not the answer. A peek with `skip_errors` gets the rows without the errors, and the number of
errors.

A shard's errors come before its rows, which are read piece by piece (`shard_contents.py`). So a limit without an order
ends the reading of a shard, unless an expression of the peek may fail on a row behind the limit.

The peek bounds the size of its answer. An answer that must be in memory at once has a smaller bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_persist import ShardReader, open_shard
from tidemark_protocol import tracing
from tidemark_protocol.check.nodes import fits
from tidemark_protocol.check.plan import check_mfp
from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.messages.commands import Peek
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import MapFilterProject, OrderKey, Schema
from tidemark_protocol.types import Column, ColumnType
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Updates, diffs, errors, make_updates, row_columns, update_schema
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.evaluator import admits, evaluation
from tidemark_replica.events.jobs import JobCancelled
from tidemark_replica.peek.result_finishing import sorted_indices
from tidemark_replica.peek.shard_at import can_fail, shard_at
from tidemark_replica.render.errors import CollectionInError, ResultTooLarge
from tidemark_replica.render.expressions import catalyst
from tidemark_replica.render.expressions.mfp import compile_mfp, projection_of
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.render.plan.lowering_stream import arrow_types
from tidemark_replica.values.arrow_types import arrow_schema
from tidemark_replica.values.error_text import readable_error
from tidemark_replica.values.literals import literal_value
from tidemark_replica.values.row_repeat import repeated

TOO_LARGE = "RESULT_TOO_LARGE"
NEGATIVE = "NEGATIVE_MULTIPLICITY"
SKIPPED = "SKIPPED"
"""The code of the last row of an answer that leaves errors out: it has their number."""
BATCH_ROWS = 65_536
SORTED_BYTES_MAX = 256 * 1024 * 1024
JOB_BYTES_MAX = 128 * 1024 * 1024
Contents = Callable[[], Iterator[Updates]]


@dataclass(frozen=True)
class IndexAt:
    """The contents of an index at `as_of`, errors before rows. `keys`: only rows of these keys. `errors_once`: errors
    do not come again among the rows, so that they can be counted."""

    manifest: Manifest
    directory: Path
    as_of: int
    keys: tuple[tuple[Literal, ...], ...] | None = None
    errors_once: bool = False

    def __call__(self) -> Iterator[Updates]:
        """Runs in a Spark task, which opens the files itself."""
        return self.read_through(BatchCache(self.directory))

    def read_through(self, batches: BatchCache) -> Iterator[Updates]:
        """The contents of the index at the time, read through this cache of batches."""
        return (found for found in self._read(Trace(self.manifest, batches)) if found.num_rows)

    def _read(self, trace: Trace) -> Iterator[Updates]:
        if self.keys is not None or not self.errors_once:  # all rows include the errors
            yield trace.errors_at(self.as_of)
        if self.keys is None:
            yield from trace.rows_at(self.as_of)
        elif self.keys:
            yield trace.lookup(key_columns(self.manifest.layout, list(dict.fromkeys(self.keys))), self.as_of)


def key_columns(layout: Layout, keys: Sequence[tuple[Literal, ...]]) -> list[Any]:
    """The columns of these keys of an arrangement."""
    types = [layout.types[k] for k in layout.key]
    return [pa.array([literal_value(key[i]) for key in keys], t) for i, t in enumerate(types)]


@dataclass
class SkippedErrors:
    """The number of errors that an answer leaves out; complete once all rows are read."""

    count: int = 0


@dataclass(frozen=True)
class ReadContext:
    """The context of a read: a session for peeks that need a Spark job, the bound of an answer in bytes, open batches,
    and whether the Arrow evaluator computes the expressions that it knows. `skipped`: counts errors of a peek that
    skips them. `stopped`: whether nobody waits for the answer any more. `open_shard`: the reader of the shard at a
    location."""

    session: Callable[[], Any]
    max_bytes: int
    batches: BatchCache | None = None
    arrow: bool = True
    skipped: SkippedErrors = field(default_factory=SkippedErrors)
    stopped: Callable[[], bool] = lambda: False
    open_shard: Callable[[str], ShardReader] = open_shard


def read_index(reading: ReadContext, index: IndexTrace, peek: Peek) -> Generator[Any, None, None]:
    """The rows of an index, before order and offset. The index is pinned until the end of the iteration, or `close`.
    Raises CollectionInError, ResultTooLarge, OutOfFrontier."""
    with index.store.pin(index.arrangement) as pinned:
        manifest = pinned[index.arrangement]
        manifest.check_readable(peek.timestamp)
        source = IndexAt(manifest, index.store.directory, peek.timestamp, peek.literals, peek.skip_errors)
        here = source if reading.batches is None else partial(source.read_through, reading.batches)
        yield from _read(reading, source, here, schema_of(index.columns), peek)


def read_shard(reading: ReadContext, shard: ShardMetadata, peek: Peek) -> Generator[Any, None, None]:
    """The rows of a shard, before order and offset. Raises CollectionInError, ResultTooLarge, NotReadable,
    JobCancelled, PlanNotAllowed."""
    if peek.literals is not None:
        raise PlanNotAllowed(f"peek {peek.uuid} has the keys of an index, and {peek.target.id} is a shard")
    check_fits(shard.schema, peek)
    source, over = shard_at(shard, peek.mfp, peek.timestamp, arrow=reading.arrow)
    here = partial(source.read_through, reading.open_shard, partial(_check_wanted, reading.stopped))
    ends_at_limit = not can_fail(peek.mfp)
    return _read(reading, source, here, over.input, replace(peek, mfp=over), ends_at_limit=ends_at_limit)


def _check_wanted(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise JobCancelled("the peek was dropped while its shard was read")


def _read(
    reading: ReadContext, source: Contents, here: Contents, schema: Schema, peek: Peek, *, ends_at_limit: bool = False
) -> Generator[Any, None, None]:
    """`here`: the same contents as `source`, to be read in this process."""
    check_fits(schema, peek)
    columns = projection_of(peek.mfp)
    by_job = columns is None and not (reading.arrow and admits(peek.mfp))
    bound = _bound(reading.max_bytes, by_job, bool(peek.finishing.order))
    finish = _finish_of(peek, bound.bytes, ends_at_limit)
    if by_job:
        batches = _by_job(reading.session(), source, peek.mfp, finish)
    elif columns is None:
        batches = finish(map(evaluation(peek.mfp), here()))
    else:
        batches = finish(_projected(here(), columns))
    yield from _answer(batches, peek.columns, bound, reading.skipped)


@dataclass(frozen=True)
class AnswerBound:
    """The largest size of an answer. `but`: what the user can do besides asking for less."""

    bytes: int
    but: str


def _bound(asked: int, by_job: bool, ordered: bool) -> AnswerBound:
    bounds = [AnswerBound(asked, "raise spec.maxResultSize")]
    if by_job:
        bounds.append(AnswerBound(JOB_BYTES_MAX, "compute its expressions in a view: in a query they need Spark"))
    if ordered:
        bounds.append(AnswerBound(SORTED_BYTES_MAX, "leave ORDER BY to the client: the replica sorts in memory"))
    return min(bounds, key=lambda bound: bound.bytes)


def _finish_of(peek: Peek, max_bytes: int, ends_at_limit: bool) -> Finish | FinishTop:
    finishing = peek.finishing
    if finishing.limit is None:
        return Finish(max_bytes, skip_errors=peek.skip_errors)
    wanted = finishing.limit + finishing.offset
    if finishing.order:
        return FinishTop(max_bytes, wanted, finishing.order, peek.skip_errors)
    return Finish(max_bytes, wanted, peek.skip_errors, ends_at_limit)


def check_fits(schema: Schema, peek: Peek) -> None:
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
    with tracing.span("spark job"), _tagged(session, tracing.recorded_trace()):
        found = filtered.mapInArrow(stage, columns).toArrow()
    yield from found.to_batches()


@contextmanager
def _tagged(session: Any, trace: str) -> Iterator[None]:
    """Spark's interface shows the trace as a tag of the jobs of the block; empty: no tag."""
    if not trace:
        yield
        return
    tag = f"trace-{trace}"
    session.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        session.sparkContext.removeJobTag(tag)


def _leaf(source: Callable[[], Iterator[Updates]], rows: Iterable[Any]) -> Iterator[Updates]:
    for _ in rows:
        yield from source()


def _finish(finish: Finish | FinishTop, types: Sequence[pa.DataType], rows: Iterable[Any]) -> Iterator[Any]:
    schema = update_schema(types)
    return finish(pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)


@dataclass(frozen=True)
class Finish:
    """Turns contents into rows `c0 ... cn-1, __error`. A row with `__error` replaces all others. With `skip_errors`,
    the last row counts the errors, and does not replace the others. `ends_at_limit`: the contents behind the limit are
    not read; all errors come before."""

    max_bytes: int
    limit: int | None = None
    skip_errors: bool = False
    ends_at_limit: bool = False

    def __call__(self, contents: Iterable[Updates]) -> Iterator[Any]:
        size, rows, skipped, last = 0, 0, 0, None
        for found in contents:
            batch, errors_in_batch = without_errors(found) if self.skip_errors else (found, 0)
            skipped += errors_in_batch
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
            last = batch
            if self.ends_at_limit and self.limit is not None and rows >= self.limit:
                break
        if skipped and last is not None:
            yield _error_row(last, json.dumps({"code": SKIPPED, "errors": skipped}))


@dataclass(frozen=True)
class FinishTop:
    """The first `wanted` rows in order. Rows that cannot be among them are dropped as they come.

    A row with a multiplicity above one is kept once until the answer is made.
    """

    max_bytes: int
    wanted: int
    order: tuple[OrderKey, ...]
    skip_errors: bool = False

    def __call__(self, contents: Iterable[Updates]) -> Iterator[Any]:
        kept: list[Updates] = []
        skipped, last = 0, None
        for found in contents:
            batch, errors_in_batch = without_errors(found) if self.skip_errors else (found, 0)
            skipped += errors_in_batch
            if error := first_error(batch):
                yield _error_row(batch, error)
                return
            kept.append(batch)
            last = batch
            size = sum(rows.nbytes for rows in kept)
            if size > 3 * self.max_bytes or sum(rows.num_rows for rows in kept) > 2 * self.wanted + BATCH_ROWS:
                kept = self._first_rows(kept)
                if sum(rows.nbytes for rows in kept) > 2 * self.max_bytes:
                    yield _error_row(batch, json.dumps({"code": TOO_LARGE}))
                    return
        yield from Finish(self.max_bytes, self.wanted)(self._first_rows(kept))
        if skipped and last is not None:
            yield _error_row(last, json.dumps({"code": SKIPPED, "errors": skipped}))

    def _first_rows(self, kept: Sequence[Updates]) -> list[Updates]:
        """The rows in order, up to the one that reaches `wanted`."""
        if not kept:
            return []
        updates = pa.Table.from_batches(kept)
        rows = updates.select([*range(updates.num_columns - 3)])
        found = updates.take(sorted_indices(rows, self.order)).combine_chunks()
        counts = found.column("__diff").to_numpy()
        ends = np.cumsum(counts, dtype=np.float64)
        return list(found.slice(0, int(np.searchsorted(ends, self.wanted, "left")) + 1).to_batches())


def without_errors(batch: Updates) -> tuple[Updates, int]:
    """The batch without its errors, and their number. A batch with an error of negative multiplicity stays whole: it is
    not consistent."""
    found = np.asarray(errors(batch).is_valid().to_numpy(zero_copy_only=False))
    counts = diffs(batch)[found]
    if not found.any() or (counts < 0).any():
        return batch, 0
    return batch.filter(pa.array(~found)), int(counts.sum())


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


def _answer(
    batches: Iterable[Any], columns: Sequence[Column], bound: AnswerBound, skipped: SkippedErrors
) -> Iterator[Any]:
    """The rows with the peek's column names. Counts the errors that they leave out; raises the error that replaces
    them."""
    schema = arrow_schema(columns)
    for batch in batches:
        found = batch.column(batch.num_columns - 1)
        if found.null_count < len(found):
            error = json.loads(str(found.drop_null()[0].as_py()))
            if error["code"] != SKIPPED:
                raise _error(str(found.drop_null()[0].as_py()), bound)
            skipped.count += error["errors"]
            batch = batch.filter(found.is_null())
        arrays = [c.cast(t) for c, t in zip(batch.columns[:-1], schema.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _error(error: str, bound: AnswerBound) -> CollectionInError | ResultTooLarge:
    if json.loads(error)["code"] == TOO_LARGE:
        return ResultTooLarge(f"result exceeds max size of {bound.bytes} bytes: filter it, limit it, or {bound.but}")
    return CollectionInError(f"the result is in error: {readable_error(error)}")


def schema_of(columns: Sequence[Column]) -> Schema:
    return tuple(ColumnType(c.type, c.nullable) for c in columns)
