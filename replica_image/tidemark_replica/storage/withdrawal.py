"""The rows that a table's shard has, negated: with new contents, the difference that a resnapshot ingests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, FilePart, Shard, read_part
from tidemark_protocol.types import Column

LEASE_SECONDS = 600.0
"""The lease is renewed while rows are read. Where the process dies, vacuum waits for it at most so long."""
Told = Callable[[int], None]
"""A function that a reader calls with the number of bytes that it has read since the last call."""


class Withdrawal:
    """The contents of the shard at its last complete time. `size`: of its data files, in bytes. `errors`: with the
    column `__error`, for sources whose rows may be errors."""

    def __init__(self, shard: Shard, columns: Sequence[Column], errors: bool = False) -> None:
        self._shard = shard
        self._columns = [*(column.name for column in columns), *([ERROR] if errors else []), DIFF]
        upper = self._shard.state().upper
        self._as_of = upper - 1 if upper > 0 else None
        self.size = sum(part.size for part in self._file_parts())

    def updates(self, told: Told = lambda _: None) -> Generator[pa.RecordBatch, None, None]:
        """Rows with `__diff`, not consolidated."""
        with self._shard.lease(LEASE_SECONDS) as lease:
            for part in self._file_parts():
                for batch in telling(read_part(part, columns=self._columns), part.size, part.rows, told):
                    lease.keep()
                    at = batch.schema.get_field_index(DIFF)
                    yield batch.set_column(at, batch.schema.field(at), pc.negate(batch.column(at)))

    def _file_parts(self) -> list[FilePart]:
        """The parts of the shard that hold what is withdrawn; none where there is nothing."""
        return [] if self._as_of is None else self._shard.snapshot_parts(self._as_of)


def telling(batches: Iterable[pa.RecordBatch], size: int, rows: int, told: Told) -> Iterator[pa.RecordBatch]:
    """The batches of a file of so many bytes and rows. `told` is given its bytes bit by bit, all of them by the end."""
    seen = done = 0
    for batch in batches:
        yield batch
        seen += batch.num_rows
        now = min(size * seen // max(rows, 1), size)
        told(now - done)
        done = now
    told(size - done)
