"""Data files: any process writes them, and the committing process checks them.

delta-rs commits any file, also one that is missing or of another schema. `check_staged` therefore reads the Parquet
footer of each `StagedFile` before a commit refers to it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark_persist.errors import InvalidStagedFile, StorageError
from tidemark_persist.files.batch import check_rows, conform
from tidemark_persist.log.entry import DataFile
from tidemark_persist.schema import DIFF, TIME, physical_schema, user_schema
from tidemark_persist.storage.storage import Storage
from tidemark_persist.times import EMPTY, Time

ROW_GROUP_ROWS = 65_536
STAGED_AGE_MAX_SECONDS = 12 * 3600.0  # half the age at which vacuum deletes files of unknown origin
CHECK_THREADS = 8


@dataclass(frozen=True)
class StagedFile:
    """A data file beside a shard that no commit refers to yet. It can be pickled and converted to JSON."""

    path: str
    size: int
    rows: int
    min_time: int
    max_time: int
    staged_ms: int

    def to_json(self) -> str:
        """One line of JSON; `from_json` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> StagedFile:
        """The file that `to_json` wrote."""
        return cls(**json.loads(text))


def write_staged(
    location: str,
    updates: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
    *,
    schema: pa.Schema | None = None,
) -> StagedFile | None:
    """Write updates beside the shard at `location`, to be committed by its writer. None if there are none.

    Batches hold the user columns, `__time` and `__diff`, and may hold `__error`. `schema` is the shard's user
    columns, by default those of the updates. Memory is that of one batch and one row group.
    """
    batches, given = _batches(updates)
    if schema is None and given is None:
        return None
    table_schema = physical_schema(user_schema(given) if schema is None else schema)
    checked = (check_rows(conform(batch, table_schema), Time(0), EMPTY) for batch in batches)
    file = write_file(Storage.at(location), checked, table_schema)
    if file is None:
        return None
    return StagedFile(file.path, file.size, file.rows, file.min_time, file.max_time, int(time.time() * 1000))


def restaged(
    location: str,
    staged: StagedFile,
    *,
    age_seconds: float = STAGED_AGE_MAX_SECONDS / 2,
    alive: Callable[[], None] = lambda: None,
) -> StagedFile:
    """The file, or a copy of it where it is older than `age_seconds`: vacuum would take it soon. `alive` is called now
    and then while it is copied.

    Raises:
        InvalidStagedFile: it is too old, and gone.
    """
    if time.time() - staged.staged_ms / 1000 < age_seconds:
        return staged
    storage = Storage.at(location)
    if storage.stat(staged.path) is None:
        raise InvalidStagedFile(f"staged file {staged.path} of shard {location} does not exist any more")
    with (
        storage.errors(f"reading {staged.path}"),
        storage.open_input(staged.path) as source,
        pq.ParquetFile(source) as file,
    ):
        schema = file.schema_arrow
        copy = write_file(storage, _tables(file, alive), schema)
    if copy is None:
        raise InvalidStagedFile(f"staged file {staged.path} of shard {location} has no rows")
    return StagedFile(copy.path, copy.size, copy.rows, copy.min_time, copy.max_time, int(time.time() * 1000))


def _tables(file: pq.ParquetFile, alive: Callable[[], None]) -> Iterator[pa.Table]:
    for batch in file.iter_batches():
        alive()
        yield pa.Table.from_batches([batch])


def _batches(updates: Any) -> tuple[Iterable[pa.RecordBatch | pa.Table], pa.Schema | None]:
    """The updates one piece after the other, and their schema (None: there are no pieces)."""
    if isinstance(updates, pa.Table | pa.RecordBatch):
        return [updates], updates.schema
    if isinstance(updates, pa.RecordBatchReader):
        return updates, updates.schema
    pieces = iter(updates)
    first = next(pieces, None)
    return ([], None) if first is None else (chain([first], pieces), first.schema)


def new_path() -> str:
    """A unique name for a data file."""
    return f"{uuid.uuid4().hex}.parquet"


def remove_staged(location: str, files: Iterable[StagedFile]) -> None:
    """Delete files that nobody will commit. A file that the store does not delete stays until vacuum takes it."""
    storage = Storage.at(location)
    for file in files:
        with suppress(StorageError):
            storage.remove(file.path)


def write_file(
    storage: Storage, tables: Iterable[pa.Table], schema: pa.Schema, path: str | None = None
) -> DataFile | None:
    """Write tables of the physical schema as one Parquet file; None (and no file) if all are empty."""
    filled = (table for table in tables if table.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    path = path or new_path()
    rows, low, high = 0, EMPTY - 1, 0
    with storage.errors(f"creating {path}", writing=True):
        sink = storage.open_output(path)
    try:
        with (
            storage.errors(f"writing {path}", writing=True),
            sink,
            pq.ParquetWriter(sink, schema, compression="zstd") as writer,
        ):
            for table in chain([first], filled):
                writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
                bounds = pc.min_max(table.column(TIME)).as_py()
                rows, low, high = rows + table.num_rows, min(low, bounds["min"]), max(high, bounds["max"])
            writer.close()
            size = sink.tell()
    except BaseException:
        storage.remove(path)
        raise
    return DataFile(path, size, rows, Time(low), Time(high))


def check_staged(
    storage: Storage, files: Sequence[StagedFile], schema: pa.Schema, lower: Time, upper: Time
) -> list[DataFile]:
    """The files' real sizes, rows and times. Raises InvalidStagedFile for the first that does not fit."""
    if len({file.path for file in files}) != len(files):
        raise InvalidStagedFile(f"shard {storage.location}: the same staged file is given twice")
    with ThreadPoolExecutor(min(CHECK_THREADS, max(1, len(files)))) as pool:
        return list(pool.map(lambda file: _check_one(storage, file, schema, lower, upper), files))


def _check_one(storage: Storage, staged: StagedFile, schema: pa.Schema, lower: Time, upper: Time) -> DataFile:
    where = f"staged file {staged.path} of shard {storage.location}"
    if time.time() - staged.staged_ms / 1000 > STAGED_AGE_MAX_SECONDS:
        raise InvalidStagedFile(f"{where} is older than {STAGED_AGE_MAX_SECONDS:.0f} s; write it again")
    stat = storage.stat(staged.path)
    if stat is None:
        raise InvalidStagedFile(f"{where} does not exist")
    if stat.size != staged.size:
        raise InvalidStagedFile(f"{where} has {stat.size} bytes; its writer recorded {staged.size}; write it again")
    with (
        storage.errors(f"reading {staged.path}"),
        storage.open_input(staged.path) as source,
        pq.ParquetFile(source) as file,
    ):
        if not file.schema_arrow.equals(schema):
            raise InvalidStagedFile(f"{where} has schema {file.schema_arrow}; the shard's is {schema}")
        rows = file.metadata.num_rows
        low, high = _time_bounds(file.metadata, where)
    if low < lower or high >= upper:
        raise InvalidStagedFile(f"{where} holds times {low} to {high}, outside [{lower}, {upper})")
    return DataFile(staged.path, stat.size, rows, Time(low), Time(high))


def _time_bounds(metadata: Any, where: str) -> tuple[int, int]:
    """The smallest and largest `__time`, from row-group statistics; neither time nor diff may be NULL."""
    lows, highs = [], []
    for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
        for column in (group.column(index) for index in range(group.num_columns)):
            if column.path_in_schema not in (TIME, DIFF):
                continue
            stats = column.statistics
            if stats is None or not stats.has_min_max or stats.null_count:
                raise InvalidStagedFile(f"{where} has no statistics, or NULLs, in {column.path_in_schema}")
            if column.path_in_schema == TIME:
                lows.append(stats.min)
                highs.append(stats.max)
    if not lows:
        raise InvalidStagedFile(f"{where} has no rows")
    return min(lows), max(highs)
