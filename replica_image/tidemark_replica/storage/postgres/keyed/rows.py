"""The rows of a table whose replica identity is a key, so that a change finds the row before it.

    shard ──┐                                  ok rows by key ──────► find(keys)
            ├── once, where a row is sought ──►
    files ──┘   of this tick                   error rows by the digest of their key (an error row has no values)

The shard at its upper is the state; the indexes are scratch, and kept from tick to tick as long as they have exactly
what is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from time import monotonic

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, FilePart, Shard, StagedFile, read_part, staged_part
from tidemark_replica.storage.keyed_rows.index import KeyIndex
from tidemark_replica.storage.postgres.keyed.digests import DIGEST, digests_in

_ERROR_SCHEMA = pa.schema([pa.field(DIGEST, pa.string()), pa.field(ERROR, pa.string())])


class KeyedRows:
    """The rows of `shard` by the columns `keys`. For one thread. `alive` is called now and then while rows are read."""

    def __init__(self, shard: Shard, keys: Sequence[str], alive: Callable[[], None]) -> None:
        self.keys = tuple(keys)
        self.alive = alive
        self._shard = shard
        self._indexes: tuple[KeyIndex, ...] = ()
        self._upper = 0
        self._is_ahead = False
        self.building_since: float | None = None
        """The time when the indexes began to be built; None while they are not. Readable from any thread."""

    def opened(self, files: Sequence[StagedFile], is_emptied: bool) -> KeyedRows:
        """This, ready for `find`. `files`: the updates of this tick so far. `is_emptied`: they begin with an empty
        table."""
        upper = self._shard.refresh().upper
        if self._indexes and (self._is_ahead or self._upper == upper):
            return self
        self.close()
        self.building_since = monotonic()
        self._indexes = KeyIndex(self._shard.schema, self.keys), KeyIndex(_ERROR_SCHEMA, [DIGEST])
        try:
            contents = iter(()) if is_emptied or upper == 0 else self._contents(upper)
            for batch in chain(contents, self._staged(files)):
                self._add(batch)
            self._commit()
        except BaseException:
            self.close()
            raise
        finally:
            self.building_since = None
        self._upper, self._is_ahead = upper, bool(files) or is_emptied
        return self

    @property
    def row_bytes(self) -> float:
        """The bytes of an ok row, on average."""
        return self._indexes[0].bytes / max(1, self._indexes[0].rows)

    def find(self, keys: pa.Table) -> pa.Table:
        """The ok rows with these keys, which are distinct: the columns of the shard and `__diff`."""
        return self._indexes[0].lookup(keys)

    def find_errors(self, digests: pa.Array) -> pa.Table:
        """The error rows of the keys with these digests: the digest, `__error` and `__diff`."""
        return self._indexes[1].lookup(pa.table({DIGEST: digests}))

    def add(self, updates: pa.Table) -> None:
        """Adds updates of this tick; `find` gives them at once."""
        if self._indexes:
            self._is_ahead = True
            self._add(updates)
            self._commit()

    def bound(self, upper: int) -> None:
        """A binding names the updates of the tick; the shard's upper will be `upper`."""
        self._upper, self._is_ahead = upper, False

    def discard(self) -> None:
        """No binding will name the updates since the last one."""
        if self._is_ahead:
            self.close()

    def close(self) -> None:
        for index in self._indexes:
            index.close()
        self._indexes, self._is_ahead = (), False

    def _add(self, updates: pa.Table) -> None:
        rows, errors = self._indexes
        is_error = pc.is_valid(updates.column(ERROR))
        rows.add([updates.filter(pc.invert(is_error)).select([*self._shard.schema.names, DIFF])])
        wrong = updates.filter(is_error).select([ERROR, DIFF])
        if wrong.num_rows:
            errors.add([wrong.add_column(0, DIGEST, digests_in(wrong.column(ERROR)))])

    def _commit(self) -> None:
        for index in self._indexes:
            index.commit()

    def _contents(self, upper: int) -> Iterator[pa.Table]:
        with self._shard.lease():
            yield from self._read(self._shard.snapshot_parts(upper - 1))

    def _staged(self, files: Sequence[StagedFile]) -> Iterator[pa.Table]:
        return self._read([staged_part(self._shard.location, file) for file in files])

    def _read(self, parts: Sequence[FilePart]) -> Iterator[pa.Table]:
        for part in parts:
            for batch in read_part(part, columns=[*self._shard.schema.names, ERROR, DIFF]):
                self.alive()
                yield pa.Table.from_batches([batch])
