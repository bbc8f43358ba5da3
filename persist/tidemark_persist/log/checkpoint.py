"""The state of a shard in a checkpoint, read without delta-rs: a handle that is far behind goes on from there.

    open the table     lists the whole log, reads the checkpoint and the entries after it, and searches it four times
    read_checkpoint    reads one file

A checkpoint is read where it has the table's id, protocol and columns that the handle knows, and the number of rows and
the times of each file, all before the upper. Any other one (of several parts, with deletion vectors) is left to
delta-rs, whose errors name the fault. Files of another program may be among its files: the handle's epoch changes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from tidemark_persist.log.entry import FOREIGN, SINCE, TERM, UPPER, DataFile, data_file, is_complete
from tidemark_persist.log.state import ShardState, TableState
from tidemark_persist.storage.storage import LOG_DIR, Storage
from tidemark_persist.times import Term, Time

_COLUMNS = [
    *("add.path", "add.size", "add.stats", "add.deletionVector.storageType"),
    *("txn.appId", "txn.version"),
    *("metaData.id", "metaData.schemaString"),
    *("protocol.minReaderVersion", "protocol.readerFeatures"),
]


def read_checkpoint(storage: Storage, table: DeltaTable, version: int) -> TableState | None:
    """The state at a version that has a checkpoint, on a disk. None where only delta-rs can tell. `table`: the shard's
    table as it was opened."""
    if storage.local_path is None:  # entries after the checkpoint would be one request each
        return None
    try:
        path = storage.local_path / LOG_DIR / f"{version:020}.checkpoint.parquet"
        with pq.ParquetFile(path) as file:
            read = file.read(columns=_COLUMNS, use_threads=False)
        actions = {name: read.column(name).combine_chunks().drop_null().to_pylist() for name in read.column_names}
        return _state(table, version, actions)
    except (OSError, KeyError, ValueError, TypeError, AttributeError, pa.ArrowException):
        return None


def _state(table: DeltaTable, version: int, actions: dict[str, list[dict[str, Any]]]) -> TableState | None:
    """Raises KeyError, ValueError where something is missing."""
    (metadata,), (protocol,) = actions["metaData"], actions["protocol"]
    known = table.protocol()
    if metadata["id"] != str(table.metadata().id) or Schema.from_json(metadata["schemaString"]) != table.schema():
        return None
    if protocol["minReaderVersion"] != known.min_reader_version or protocol["readerFeatures"] != known.reader_features:
        return None
    moved = {txn["appId"]: txn["version"] for txn in actions["txn"]}
    upper, since, term = moved[UPPER], moved[SINCE], moved[TERM]
    files = list[DataFile]()
    for add in actions["add"]:
        file = data_file(add)
        if add["deletionVector"] is not None or not is_complete(add) or file.max_time >= max(upper, 1):
            return None
        files.append(file)
    return TableState(ShardState(Time(upper), Time(since), Term(term), version, moved.get(FOREIGN, 0)), files)
