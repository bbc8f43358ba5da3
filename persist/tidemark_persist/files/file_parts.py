"""A part: a file to read, and between which times.

Listings (`snapshot_parts`, `listen`) are exact at one version of the table: they name files, and the files
never change. A compaction that comes later writes other files and leaves these to be vacuumed after a grace
period (or a lease); so a listing stays exact while it is being read, wherever that happens.

Parts travel to other processes as pickles or JSON. They do not carry credentials.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark_persist.errors import PartGone
from tidemark_persist.files.pruning import Condition, RowGroupTest, every_group, may_have_errors, may_meet
from tidemark_persist.files.staging import StagedFile
from tidemark_persist.log.entry import DataFile
from tidemark_persist.schema import TIME, read_schema
from tidemark_persist.storage.mounted_settings import Options
from tidemark_persist.storage.storage import Storage
from tidemark_persist.times import EMPTY, Time

BATCH_ROWS = 65_536
FEW_ROWS = 4096
READ_BYTES_MAX = 1 << 26
"""Bytes of row groups that are requested at a time: Arrow keeps what it fetches ahead until the next request."""


@dataclass(frozen=True)
class FilePart:
    """The updates of one file whose time is in `[lower, upper)`.

    `path` is relative to the shard's `location`, and `size` is the whole file's. `rows` is about how many will be
    read (-1: unknown): the file's, by the share of its times. `file_rows` is how many the file has (-1: unknown), of
    whatever time.
    """

    location: str
    path: str
    lower: Time
    upper: Time
    rows: int
    size: int
    file_rows: int = -1

    @property
    def rows_about(self) -> int:
        """About how many rows will be read, at least 1: the file's bytes if it does not tell its rows."""
        return max(self.rows if self.rows >= 0 else self.size, 1)

    @property
    def rows_at_most(self) -> int:
        """An upper bound of the rows that will be read, at least 1."""
        return max(self.file_rows, self.rows_about)

    def before(self, upper: int) -> FilePart:
        """The part's share of the times before `upper`, which is beyond its lower."""
        if self.upper <= upper:
            return self
        rows = -(-self.rows * (upper - self.lower) // (self.upper - self.lower)) if self.rows > 0 else self.rows
        return replace(self, upper=Time(upper), rows=rows)

    def to_json(self) -> str:
        """One line of JSON; `from_json` reads it."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> FilePart:
        """The part that `to_json` wrote."""
        return cls(**json.loads(text))


def part_of(location: str, file: DataFile, lower: Time, upper: Time) -> FilePart:
    """The file's share of `[lower, upper)`, between the first and the last of its own times."""
    first, end = max(lower, file.min_time), min(upper, file.max_time + 1)
    rows = -(-file.rows * (end - first) // (file.max_time + 1 - file.min_time)) if file.rows > 0 else file.rows
    return FilePart(location, file.path, Time(first), Time(end), rows, file.size, file.rows)


def staged_part(location: str, file: StagedFile) -> FilePart:
    """All updates of a staged file of the shard at the location, to be read before a commit refers to it."""
    return FilePart(location, file.path, Time(0), EMPTY, file.rows, file.size)


@dataclass(frozen=True)
class Sieve:
    """A test of a few columns, before the others of a row group are read: `passes` is true of a batch of these columns
    if one of its rows is wanted."""

    columns: tuple[str, ...]
    passes: Callable[[pa.RecordBatch], bool]


def read_part(
    part: FilePart,
    storage_options: Options = None,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    turn: tuple[int, int] = (0, 1),
    conditions: Sequence[Condition] = (),
    groups: RowGroupTest = every_group,
    sieve: Sieve | None = None,
    read_bytes: int = READ_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """The part's updates, neither consolidated nor moved in time, one batch after the other.

    Raises PartGone where its file is not there any more. Row groups outside the times are not read. `columns` selects
    among the table's; all of them by default. With `turn` (i, n) only every n-th row group is read, from the i-th on:
    so n readers share a part. Rows that do not meet all of the `conditions` may be left out, error rows excepted, and
    so may a row group of which the `sieve` wants no row. Row groups outside `groups` may be left out. `read_bytes`: of
    row groups that are requested at a time.
    """
    wanted = _Wanted(columns, batch_rows, turn, conditions, groups, sieve, read_bytes)
    try:
        storage = Storage(part.location, storage_options)
        yield from _batches(part, storage, wanted)
    except FileNotFoundError as error:  # an object store may raise it later: each row group is a request
        raise PartGone.of(part.path, part.location) from error


@dataclass(frozen=True)
class _Wanted:
    """The arguments of `read_part` that say which rows to read, and how."""

    columns: Sequence[str] | None
    batch_rows: int
    turn: tuple[int, int]
    conditions: Sequence[Condition]
    groups: RowGroupTest
    sieve: Sieve | None
    read_bytes: int

    @property
    def few_rows(self) -> int:
        """The number of rows that are read faster than threads are started or statistics evaluated."""
        return self.batch_rows if self.sieve is None else min(self.batch_rows, FEW_ROWS)


def _batches(part: FilePart, storage: Storage, of: _Wanted) -> Iterator[pa.RecordBatch]:
    with storage.errors(f"opening {part.path}"):
        source = storage.open_input(part.path, part.size)
    few = 0 <= part.rows <= of.few_rows
    with storage.errors(f"reading {part.path}"), source, pq.ParquetFile(source, pre_buffer=not few) as file:
        wanted = list(of.columns) if of.columns is not None else file.schema_arrow.names
        groups = list(range(of.turn[0], file.num_row_groups, of.turn[1]))
        if not few:
            groups = [g for g in groups if _is_wanted(file, g, part, of)]
        fetched = wanted if TIME in wanted else [*wanted, TIME]
        runs = [groups] if few else _row_group_runs(file, groups, of)
        batches = (file.iter_batches(of.batch_rows, row_groups=s, columns=fetched, use_threads=not few) for s in runs)
        as_written, as_read = file.schema_arrow, read_schema(file.schema_arrow)
        casts = None if as_read.equals(as_written) else pa.schema([as_read.field(name) for name in fetched])
        for batch in chain.from_iterable(batches):
            kept = filter_times(batch, part.lower, part.upper)
            kept = kept if casts is None else kept.select(fetched).cast(casts)
            if kept.num_rows:
                yield kept if kept.schema.names == wanted else kept.select(wanted)


def _is_wanted(file: Any, group: int, part: FilePart, of: _Wanted) -> bool:
    """Whether the statistics of a row group leave it open that it has wanted rows."""
    in_time = _may_hold(file.metadata.row_group(group), part)
    return in_time and of.groups(file, group) and (not of.conditions or may_meet(file, group, of.conditions))


def _passes(file: Any, group: int, sieve: Sieve) -> bool:
    """Whether a row group has wanted rows, or may have error rows."""
    if may_have_errors(file, group):
        return True
    batches = file.iter_batches(file.metadata.row_group(group).num_rows, row_groups=[group], columns=sieve.columns)
    return any(map(sieve.passes, batches))


def filter_times(updates: Any, lower: Time, upper: Time) -> Any:
    """The rows of a batch or table whose time is in `[lower, upper)`."""
    times = updates.column(TIME)
    if updates.num_rows:
        found = times.to_numpy()
        if lower <= found.min() and found.max() < upper:
            return updates
    return updates.filter(pc.and_(pc.greater_equal(times, lower), pc.less(times, upper)))


def _row_group_runs(file: Any, groups: Sequence[int], of: _Wanted) -> Iterator[list[int]]:
    """The row groups that pass the sieve, in runs of at most `read_bytes`, or of one group."""
    run, size = list[int](), 0
    for group in groups:
        if of.sieve is not None and not _passes(file, group, of.sieve):
            continue
        takes = file.metadata.row_group(group).total_byte_size
        if run and size + takes > of.read_bytes:
            yield run
            run, size = [], 0
        run.append(group)
        size += takes
    if run:
        yield run


def _may_hold(group: Any, part: FilePart) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == TIME:
            stats = column.statistics
            if stats is None or not stats.has_min_max:
                return True
            return bool(stats.min < part.upper and part.lower <= stats.max)
    return True
