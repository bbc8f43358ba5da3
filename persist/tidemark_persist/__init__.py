"""Durable collections (*shards*) on Delta Lake.

A shard is a multiset of rows that changes over time, kept as updates ``(row, time, diff)`` in a Delta table
that any Delta reader can open. Its *upper* says which times are complete, its *since* which can still be told
apart:

    time  0 ........ since ................ upper ........ EMPTY
          merged into  |  every time readable |  not written yet
          the since    |                      |

Writing moves the upper, and only by compare-and-append: of several writers that expect the same upper one
wins. Reading is ``snapshot(as_of)`` (the contents at a time) and ``listen(lower, upper)`` (the updates of a
range of times); both come as files with time bounds, to be read in this process or in others.

Where to start reading: `shard.py` (the face), `log/entry.py` and `log/delta_log.py` (what a commit is, and how one is
made), `log/append.py` (who wins), `maintenance/compaction.py` and `maintenance/vacuum.py` (what keeps it small).
`docs/storage.md` tells the whole story.
"""

from tidemark_persist.errors import (
    CommitForgotten,
    Contention,
    DiffOverflow,
    Fenced,
    ForeignCommit,
    IndeterminateCommit,
    InvalidBatch,
    InvalidLocation,
    InvalidSchema,
    InvalidStagedFile,
    InvalidTime,
    NotJson,
    NotReadable,
    PartGone,
    PersistError,
    ShardDeleted,
    ShardMismatch,
    ShardNotFound,
    StorageError,
    StoreProblem,
)
from tidemark_persist.files.consolidate import consolidate
from tidemark_persist.files.file_parts import FilePart, Sieve, read_part, staged_part
from tidemark_persist.files.live_rows import LiveRows, PartScan
from tidemark_persist.files.pruning import Condition, condition
from tidemark_persist.files.spill import set_spill_folder, spill_folder
from tidemark_persist.files.staging import StagedFile, remove_staged, restaged, write_staged
from tidemark_persist.log.append import Appended, UpperMismatch
from tidemark_persist.log.conditional_put import put_if_absent, read_record
from tidemark_persist.log.entry import DataFile
from tidemark_persist.log.state import ShardState
from tidemark_persist.maintenance.lease import Lease
from tidemark_persist.maintenance.maintenance import MaintenancePolicy, Work
from tidemark_persist.schema import DIFF, ERROR, TIME, physical_schema
from tidemark_persist.shard import Shard, ShardReader, create_or_open, delete_shard, open_existing, open_shard
from tidemark_persist.shard_writers import ShardWriters
from tidemark_persist.storage.object_reader import ObjectChanged, ObjectReader, ObjectVersion
from tidemark_persist.storage.storage import Storage, check_store
from tidemark_persist.times import EMPTY, ShardId, Term, Time

__all__ = [
    "DIFF",
    "EMPTY",
    "ERROR",
    "TIME",
    "Appended",
    "CommitForgotten",
    "Condition",
    "Contention",
    "DataFile",
    "DiffOverflow",
    "Fenced",
    "FilePart",
    "ForeignCommit",
    "IndeterminateCommit",
    "InvalidBatch",
    "InvalidLocation",
    "InvalidSchema",
    "InvalidStagedFile",
    "InvalidTime",
    "Lease",
    "LiveRows",
    "MaintenancePolicy",
    "NotJson",
    "NotReadable",
    "ObjectChanged",
    "ObjectReader",
    "ObjectVersion",
    "PartGone",
    "PartScan",
    "PersistError",
    "Shard",
    "ShardDeleted",
    "ShardId",
    "ShardMismatch",
    "ShardNotFound",
    "ShardReader",
    "ShardState",
    "ShardWriters",
    "Sieve",
    "StagedFile",
    "Storage",
    "StorageError",
    "StoreProblem",
    "Term",
    "Time",
    "UpperMismatch",
    "Work",
    "check_store",
    "condition",
    "consolidate",
    "create_or_open",
    "delete_shard",
    "open_existing",
    "open_shard",
    "physical_schema",
    "put_if_absent",
    "read_part",
    "read_record",
    "remove_staged",
    "restaged",
    "set_spill_folder",
    "spill_folder",
    "staged_part",
    "write_staged",
]
