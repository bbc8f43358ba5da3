"""A copy on a disk: the contents of a collection at one time, written once, complete or absent.

    files of the hydration ──divided, consolidated──► shares ──► part-00000.parquet ...  in a folder of this attempt
                                                             └─► _manifest.json          (copy, rows, files)
    the folder is renamed to the target, if nothing is there

    the process dies before the rename     nothing is at the target; the next attempt removes the folder
    ... after it, before the answer        the next attempt finds its own copy's manifest, and answers from that
    two replicas at once                   one renames; the other finds the manifest of the same copy, and answers alike

Memory holds one share: a large copy is divided on disk, beside the files of the hydration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark_persist import DIFF, ERROR, TIME
from tidemark_persist.schema import SYSTEM_FIELDS
from tidemark_protocol.copy_location import STAGING, folder_of
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import CopyToSink
from tidemark_replica.errors import ReplicaError
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.copy.csv import write_csv
from tidemark_replica.sinks.copy.staging import attempt, publish, sync
from tidemark_replica.sinks.table.shard_updates import Rows, consolidated
from tidemark_replica.values.arrow_types import arrow_schema
from tidemark_replica.values.error_text import readable_error
from tidemark_replica.values.row_repeat import repeated

MANIFEST = "_manifest.json"
Table = Any


class CopyFailed(ReplicaError):
    """The copy cannot be made. The message has the reason."""


@dataclass(frozen=True)
class Copy:
    """`id`: the same on every replica that writes the copy; `storage`: the instance's location, which contains the
    target."""

    id: GlobalId
    sink: CopyToSink
    as_of: int
    storage: str

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.sink.columns)


def write_copy(copy: Copy, delta: SinkDelta | None, session: Callable[[], Any], stopped: Callable[[], bool]) -> int:
    """Writes the copy unless it exists; returns its number of rows. Raises CopyFailed, OSError, and what Spark
    raises."""
    target, staging = _target_and_staging(copy)
    if target.exists():
        return _rows_there(copy, target)
    with attempt(staging) as folder:
        manifest = write_files(copy, folder, delta, session, stopped)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        check(stopped)
        return int(manifest["rows"]) if publish(folder, target) else _rows_there(copy, target)


def write_files(
    copy: Copy, folder: Path, delta: SinkDelta | None, session: Callable[[], Any], stopped: Callable[[], bool]
) -> dict[str, Any]:
    """Writes all files of the copy into a local folder; returns the manifest. Raises as `write_copy` does."""
    tables = _contents(copy, delta, stopped)
    if copy.sink.format == "csv":
        rows, files = write_csv(folder, tables, copy.sink.columns, session)
    else:
        rows, files = _write_parquet(folder, tables, copy.schema)
    return {"copy": copy.id, "as_of": copy.as_of, "format": copy.sink.format, "rows": rows, "files": files}


def _target_and_staging(copy: Copy) -> tuple[Path, Path]:
    """The target and the folder of attempts. Raises CopyFailed where a symbolic link leads out of the storage."""
    try:
        folder = Path(folder_of(copy.storage, copy.sink.location))
    except ValueError as error:
        raise CopyFailed(str(error)) from None
    target = Path(copy.sink.location)
    if not target.resolve().is_relative_to(Path(copy.storage).resolve()):
        raise CopyFailed(f"{target} leads out of {copy.storage} by a symbolic link; choose another location")
    around = next((p for p in target.parents if p.is_relative_to(folder) and (p / MANIFEST).exists()), None)
    if around is not None:
        raise CopyFailed(f"{target} is inside {around}, which is another copy; choose another location")
    return target, folder / STAGING


def _rows_there(copy: Copy, target: Path) -> int:
    """The number of rows of this copy, which another attempt has completed. Raises CopyFailed where the target is
    something else."""
    try:
        manifest = json.loads((target / MANIFEST).read_text())
    except (OSError, ValueError):
        manifest = {}
    if not isinstance(manifest, dict) or manifest.get("copy") != copy.id:
        raise CopyFailed(f"{target} exists; choose a location that does not exist")
    sync(target.parent)  # the attempt that renamed it may have died before it synced the folder
    return int(manifest["rows"])


def _contents(copy: Copy, delta: SinkDelta | None, stopped: Callable[[], bool]) -> Iterator[Iterator[Table]]:
    """The rows, repeated by their multiplicity: for each share its tables."""
    if delta is None or not delta.files:
        return
    rows = Rows(pa.schema([*copy.schema, *SYSTEM_FIELDS]))
    size = sum(file.stat().st_size for file in delta.files)
    held = (table.filter(pc.less_equal(table.column(TIME), copy.as_of)) for table in rows.read((delta,)))
    for share in consolidated(rows, held, size, delta.files[0].parent):
        check(stopped)
        _check_contents(share)
        yield repeated(share.select(copy.schema.names), share.column(DIFF).to_numpy())


def check(stopped: Callable[[], bool]) -> None:
    """Raises CopyFailed where the copy was dropped."""
    if stopped():
        raise CopyFailed("the copy was dropped")


def _check_contents(share: Table) -> None:
    failing = share.column(ERROR).drop_null()
    if len(failing):
        raise CopyFailed(f"the result is in error: {readable_error(pc.min(failing).as_py())}")
    if pc.min(share.column(DIFF)).as_py() < 0:
        raise CopyFailed("the result is in error: NEGATIVE_MULTIPLICITY")


def _write_parquet(folder: Path, shares: Iterator[Iterator[Table]], schema: pa.Schema) -> tuple[int, list[str]]:
    """One file per share; without rows one empty file that has the columns."""
    total, files = 0, list[str]()
    for tables in shares:
        rows, name = _write_file(folder, len(files), tables, schema)
        total += rows
        files.append(name)
    return total, files or [_write_file(folder, 0, iter(()), schema)[1]]


def _write_file(folder: Path, number: int, tables: Iterator[Table], schema: pa.Schema) -> tuple[int, str]:
    name, rows = f"part-{number:05}.parquet", 0
    with pq.ParquetWriter(folder / name, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
            rows += table.num_rows
    return rows, name
