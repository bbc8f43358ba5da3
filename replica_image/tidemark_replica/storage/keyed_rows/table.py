"""A table whose shard is its state by key: changes become updates of it, a tick at a time.

    updates(changes) ──► staged file ──► binding at `time` ──► bound(time + 1)      or discard(): no binding names them

The index is built from the shard when the first changes come, and again where the shard is not where the bindings that
it knows have left it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from time import monotonic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, Shard, read_part
from tidemark_persist.files.spill import divide, row_hash
from tidemark_replica.storage.keyed_rows.changes import latest, updates_of
from tidemark_replica.storage.keyed_rows.index import KeyIndex

LOG = logging.getLogger(__name__)
SHARE_BYTES, SHARES_MAX = 64 << 20, 256
"""More changes than this are divided on disk by a hash of their keys, and worked on a share at a time."""


class KeyedTable:
    """The rows of `shard` by the columns `keys`, which are never NULL; at most one row has a key. For one thread."""

    def __init__(self, shard: Shard, keys: Sequence[str]) -> None:
        self._shard, self._keys = shard, list(keys)
        self._index: KeyIndex | None = None
        self._upper = 0
        self.building_since: float | None = None
        """The monotonic time at which the index began to be built; None while it is not. Readable from any thread."""

    def updates(
        self, changes: Iterable[pa.Table], size: int, without_row: Callable[[pa.Table], None]
    ) -> Iterator[pa.Table]:
        """The updates of all changes at the next time, as tables of user columns and `__diff`. `changes`: tables of
        one schema, in order (`changes.py`), of about `size` bytes. `without_row` is given the changes that keep columns
        of a row that is not there, which count as deletions. Raises StorageError."""
        for some in _shares(iter(changes), self._keys, size):
            index = self._fresh_index()
            last = latest(some, self._keys)
            updates, without = updates_of(last, self._keys, index.lookup(last.select(self._keys)))
            if without.num_rows:
                without_row(without)
            index.add([updates])
            yield updates

    def bound(self, upper: int) -> None:
        """A binding names the updates since the last call, if any; the shard's upper will be `upper`."""
        if self._index is not None:
            self._index.commit()
            self._upper = upper

    def discard(self) -> None:
        """No binding will name the updates since the last call of `bound`."""
        if self._index is not None:
            self._index.discard()

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def _fresh_index(self) -> KeyIndex:
        upper = self._shard.refresh().upper
        if self._index is not None and self._upper == upper:
            return self._index
        self.close()
        self.building_since = began = monotonic()
        index = KeyIndex(self._shard.schema, self._keys)
        try:
            index.add(self._contents(upper))
            index.commit()
        except BaseException:
            index.close()
            raise
        finally:
            self.building_since = None
        LOG.info("shard %s: rows by key in %.1f s, %d bytes", self._shard.location, monotonic() - began, index.bytes)
        self._index, self._upper = index, upper
        return index

    def _contents(self, upper: int) -> Iterator[pa.Table]:
        """The shard's updates before `upper`, without error rows."""
        if upper == 0:
            return
        names = [*self._shard.schema.names, DIFF]
        with self._shard.lease():
            for part in self._shard.snapshot_parts(upper - 1):
                for batch in read_part(part, columns=[*names, ERROR]):
                    yield pa.Table.from_batches([batch.filter(pc.is_null(batch.column(ERROR))).select(names)])


def _shares(changes: Iterator[pa.Table], keys: Sequence[str], size: int) -> Iterator[pa.Table]:
    """All changes, in tables that have all changes of each of their keys, in order."""
    first = next(changes, None)
    if first is None:
        return
    count = min(-(-size // SHARE_BYTES), SHARES_MAX)

    def every() -> Iterator[pa.Table]:
        yield first
        yield from changes

    def share_of(table: pa.Table) -> np.ndarray:
        return row_hash(table.select(list(keys))) % np.uint64(count)

    with closing(divide(every(), first.schema, count, share_of)) as shares:
        for share in shares:
            tables = list(share)
            if tables:
                yield pa.concat_tables(tables).combine_chunks()
