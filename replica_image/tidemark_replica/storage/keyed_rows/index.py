"""Rows by the hash of their key, in scratch: an arrangement of one process, which ends with it.

    add ──► sorted runs ──► batches, merged so that there are few      a lookup is a binary search in each of them

Memory is that of a chunk of rows and of a lookup; files are mapped. The bits of floats are kept, as the shard has them:
-0.0 is not +0.0 in the rows that a change takes back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemark_persist import DIFF, spill_folder
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.consolidate import consolidate_sorted
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import diffs, row_columns
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import apply, plan_merges
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.step import BatchWriter, StepContext, StepId, merge
from tidemark_replica.arrangement.step_runs import StepRuns

CHUNK_ROWS = 1 << 18
_ID = ArrangementId("rows")
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


class KeyIndex:
    """The rows of a table with columns `schema`, by the columns `keys`. Updates that are added count once they are
    committed."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._schema, self._keys = schema, list(keys)
        self._place = tempfile.TemporaryDirectory(prefix="tidemark-keys-", dir=spill_folder())
        self._folder = Path(self._place.name)
        self._stored = [f.type if f.name in self._keys else _BITS.get(f.type, f.type) for f in schema]
        layout = Layout.of_rows(self._stored, [schema.get_field_index(key) for key in self._keys])
        self._manifest = Manifest.empty(_ID, layout, 0)
        self._cache = BatchCache(self._folder, random_access=True)
        self._context, self._runs = self._begin()

    @property
    def bytes(self) -> int:
        return self._manifest.bytes

    @property
    def rows(self) -> int:
        return self._manifest.rows

    def add(self, updates: Iterable[pa.Table]) -> None:
        """Adds updates: user columns and `__diff`."""
        layout = self._manifest.layout
        for table in updates:
            for batch in table.combine_chunks().to_batches(CHUNK_ROWS):
                columns = [
                    batch.column(f.name).view(t) if t != f.type else batch.column(f.name)
                    for f, t in zip(self._schema, self._stored, strict=True)
                ]
                hashes = key_hashes(layout.key_columns(columns), batch.num_rows)
                times = np.full(batch.num_rows, self._context.lower, np.int64)
                none, changes = pa.nulls(batch.num_rows, pa.string()), batch.column(DIFF).to_numpy()
                rows = layout.assemble(hashes, columns, times, none, changes)
                self._runs.add(consolidate_sorted(rows, layout, self._context.lower))

    def commit(self) -> None:
        """Makes the added updates count."""
        self._runs.commit()
        written = self._context.writer.written.get(_ID, [])
        if written:
            lower, upper = self._context.lower, self._context.upper
            self._manifest = self._manifest.append(written, lower, upper).allow_compaction(lower)
            self._merge()
        self._context, self._runs = self._begin()

    def discard(self) -> None:
        """Drops the updates that were added since the last commit."""
        self._runs.discard()
        self._context, self._runs = self._begin()

    def lookup(self, keys: pa.Table) -> pa.Table:
        """The committed rows of distinct keys: user columns and `__diff`."""
        wanted = self._schema.append(pa.field(DIFF, pa.int64()))
        if not keys.num_rows or not self._manifest.batches:
            return wanted.empty_table()
        columns = [keys.column(key).cast(self._schema.field(key).type).combine_chunks() for key in self._keys]
        found = Trace(self._manifest, self._cache).lookup(columns, self._manifest.upper - 1)
        arrays = [
            column.view(field.type) if column.type != field.type else column
            for column, field in zip(row_columns(found), self._schema, strict=True)
        ]
        return pa.Table.from_arrays([*arrays, pa.array(diffs(found))], schema=wanted)

    def close(self) -> None:
        self._place.cleanup()

    def _begin(self) -> tuple[StepContext, StepRuns]:
        upper = self._manifest.upper
        writer = BatchWriter(self._folder, StepId(str(upper)))
        context = StepContext(upper, upper + 1, False, {_ID: self._manifest}, self._cache, writer)
        return context, StepRuns(context, _ID)

    def _merge(self) -> None:
        for task in plan_merges(self._manifest):
            ref = merge(task, self._manifest.layout, self._cache, BatchWriter(self._folder, StepId("merge")))
            self._manifest = apply(self._manifest, task, ref)
            for batch in task.batches:
                with suppress(FileNotFoundError):
                    (self._folder / batch.file).unlink()
