"""The contents of a shard for a peek: only the columns and rows that the peek reads, in memory that does not grow with
the shard.

    peek of (k, v, w), WHERE k = 7 AND 10 / v > w, SELECT k
      columns      k, v, w                  no others are read
      conditions   k = 7                    row groups are skipped by Parquet's statistics
      sieve        k = 7                    of the others k is read first, and the rest where a row has k = 7
      filter       k = 7                    before updates are added up: it cannot fail

The errors of the shard come first, then its rows. The contents at a time are those of the whole rows: dropping columns,
and rows by a predicate that cannot fail, gives the same before and after equal rows are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_persist import DIFF, ERROR, PartScan, ShardReader, Sieve, open_shard, spill_folder
from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.expr import ScalarExpr, columns_of, map_columns
from tidemark_protocol.plan.lir import MapFilterProject, Schema
from tidemark_protocol.types import Column, ColumnType
from tidemark_replica.arrangement.rows.columns import canonical_rows
from tidemark_replica.arrangement.rows.updates import Array, Updates, make_updates, update_schema
from tidemark_replica.evaluator import admits, evaluation
from tidemark_replica.render.plan.scan_pushdown import conditions_of
from tidemark_replica.values.arrow_types import arrow_type

BATCH_ROWS = 65_536
Keep = Callable[[Updates], Updates]


def _go_on() -> None:
    """Does not end the reading."""


@dataclass(frozen=True)
class ShardAt:
    """The contents of `columns` of a shard at `as_of`, errors before rows; an equal row may come several times.

    Rows that one of the `predicates` drops are left out where statistics tell; rows that one of the `filters` drops
    always. `folder`: of spilled updates.
    """

    location: str
    columns: tuple[Column, ...]
    as_of: int
    predicates: tuple[ScalarExpr, ...] = ()
    filters: tuple[ScalarExpr, ...] = ()
    folder: Path | None = None

    def __call__(self) -> Iterator[Updates]:
        """Runs in a Spark task, which opens the shard itself."""
        return self.read_through(open_shard)

    def read_through(
        self, opened: Callable[[str], ShardReader], check: Callable[[], None] = _go_on
    ) -> Iterator[Updates]:
        """The contents of the shard at the as_of. `check` is called for each piece that is read, and ends the reading
        by raising an error."""
        with opened(self.location).contents(self.as_of, self._scan(check)) as contents:
            if contents.errors.num_rows:
                yield self._error_rows(contents.errors.combine_chunks())
            for table in contents.rows:
                yield from table.to_batches(BATCH_ROWS)

    def _scan(self, check: Callable[[], None]) -> PartScan:
        names, types = [c.name for c in self.columns], [arrow_type(c.type) for c in self.columns]
        tested = _columns_of(self.filters)
        sieve = None
        if 0 < len(tested) < len(self.columns):
            narrow = _narrow(self, tested)
            passes = partial(_has_rows, narrow, evaluation(narrow._filter), check)
            sieve = Sieve(tuple(names[i] for i in tested), passes)
        folder = self.folder if self.folder is not None and self.folder.is_dir() else None
        conditions = tuple(conditions_of(names, types, self.predicates))
        kept = partial(self._filter_batch, evaluation(self._filter) if self.filters else None, check)
        return PartScan(tuple(names), update_schema(types), kept, conditions, sieve, folder)

    def _filter_batch(self, keep: Keep | None, check: Callable[[], None], batch: pa.RecordBatch) -> Updates:
        """The updates that the filters keep, in canonical form: equal rows have equal bits."""
        check()
        updates = canonical_rows(self._updates(batch.columns[:-1], np.asarray(batch.column(DIFF).to_numpy())))
        return updates if keep is None else keep(updates)

    @property
    def _filter(self) -> MapFilterProject:
        return MapFilterProject(_schema(self.columns), (), self.filters)

    def _updates(self, columns: Sequence[Array], diff: Any) -> Updates:
        types = [arrow_type(c.type) for c in self.columns]
        cast = [c.cast(t) for c, t in zip(columns, types, strict=True)]
        return make_updates(cast, np.full(len(diff), self.as_of, np.int64), diff)

    def _error_rows(self, errors: pa.Table) -> Updates:
        rows = errors.num_rows
        columns = [pa.nulls(rows, arrow_type(c.type)) for c in self.columns]
        text, diff = (errors.column(name).to_numpy() for name in (ERROR, DIFF))
        return make_updates(columns, np.full(rows, self.as_of, np.int64), diff, pa.array(text, pa.string()))


def shard_at(
    shard: ShardMetadata, mfp: MapFilterProject, as_of: int, *, arrow: bool
) -> tuple[ShardAt, MapFilterProject]:
    """The contents that a MapFilterProject reads, and the MapFilterProject over them. `arrow`: whether the Arrow
    evaluator may be used."""
    read = _columns_read(mfp)
    columns = tuple(shard.columns[i] for i in read)
    over = _with_columns(mfp, read)
    filters = tuple(p for p in over.predicates if arrow and _drops_before_adding_up(over.input, p))
    return ShardAt(shard.location, columns, as_of, over.predicates, filters, spill_folder()), over


def can_fail(mfp: MapFilterProject) -> bool:
    """Whether the MapFilterProject may turn a row into an error."""
    return any(map(is_fallible, (*mfp.expressions, *mfp.predicates)))


def _drops_before_adding_up(schema: Schema, predicate: ScalarExpr) -> bool:
    """Whether a predicate can be evaluated here, on every row: it cannot fail and reads the shard's columns only."""
    reads_shard = all(i < len(schema) for i in columns_of(predicate))
    return reads_shard and not is_fallible(predicate) and admits(MapFilterProject(schema, (), (predicate,)))


def _columns_read(mfp: MapFilterProject) -> list[int]:
    """The positions of the columns that the MapFilterProject reads, at least one."""
    width = len(mfp.input)
    shown = range(width) if mfp.projection is None else mfp.projection
    read = {*_columns_of((*mfp.expressions, *mfp.predicates)), *shown}
    return sorted(i for i in read if i < width) or [0]


def _columns_of(exprs: Sequence[ScalarExpr]) -> list[int]:
    return sorted({column for expr in exprs for column in columns_of(expr)})


def _with_columns(mfp: MapFilterProject, columns: Sequence[int]) -> MapFilterProject:
    """The MapFilterProject over these columns of its input alone."""
    if len(columns) == len(mfp.input):
        return mfp
    moved = {column: at for at, column in enumerate(columns)}
    moved |= {len(mfp.input) + i: len(columns) + i for i in range(len(mfp.expressions))}
    expressions, predicates = (
        tuple(map_columns(expr, moved.__getitem__) for expr in exprs) for exprs in (mfp.expressions, mfp.predicates)
    )
    shown = None if mfp.projection is None else tuple(moved[i] for i in mfp.projection)
    return MapFilterProject(tuple(mfp.input[i] for i in columns), expressions, predicates, shown)


def _narrow(contents: ShardAt, columns: Sequence[int]) -> ShardAt:
    """The contents of fewer columns: those that the filters read."""
    moved = {column: at for at, column in enumerate(columns)}
    filters = tuple(map_columns(expr, moved.__getitem__) for expr in contents.filters)
    return replace(contents, columns=tuple(contents.columns[i] for i in columns), filters=filters)


def _has_rows(contents: ShardAt, keep: Keep, check: Callable[[], None], batch: pa.RecordBatch) -> bool:
    """Whether the filters keep a row of a batch."""
    check()
    updates = canonical_rows(contents._updates(batch.columns, np.ones(batch.num_rows, np.int64)))
    return bool(keep(updates).num_rows)


def _schema(columns: Sequence[Column]) -> Schema:
    return tuple(ColumnType(c.type, c.nullable) for c in columns)
