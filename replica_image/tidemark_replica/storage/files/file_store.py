"""The place of a table's files: a folder of this machine, or a prefix in a bucket.

A store is a value: Spark's tasks get a copy of it.
"""

from __future__ import annotations

from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.bucket import Bucket
from tidemark_replica.storage.files.folder import Folder

FileStore = Bucket | Folder
"""The files directly below one place."""


def is_bucket(table: FilesTable) -> bool:
    return table.path.startswith("s3://")


def file_store(table: FilesTable, options: Options = None) -> FileStore:
    """The store of a table's files. `options`: of buckets."""
    return Bucket(table.path, options) if is_bucket(table) else Folder(table.path)
