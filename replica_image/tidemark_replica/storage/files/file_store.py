"""The place of a table's files: a folder of this machine, or a prefix in a bucket.

A store is a value: Spark's tasks get a copy of it.
"""

from __future__ import annotations

from typing import BinaryIO, Protocol

from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.bucket import Bucket
from tidemark_replica.storage.files.folder import Folder
from tidemark_replica.storage.files.listing import FileVersion, FolderListing


class FileStore(Protocol):
    """The files directly below one place."""

    @property
    def reads_versions(self) -> bool:
        """Whether `open` itself raises where the file is in another version. Otherwise the version is checked before
        and after."""

    def list(self, pattern: str) -> FolderListing:
        """The files whose names match the pattern, without hidden and unfinished ones. Raises SourceUnusable,
        StorageError."""

    def version_of(self, name: str) -> FileVersion | None:
        """The present version of the file; None where it is gone. Raises StorageError."""

    def is_complete(self, name: str, format: str, compression: str) -> bool:
        """Whether the file looks finished. An empty text file does."""

    def open(self, file: FileVersion, *, sequential: bool = True) -> BinaryIO:
        """The bytes of the file, to be read from one end to the other, or in parts. Raises FileNotFoundError,
        FileChanged, StorageError, OSError, also while it is read."""


def is_bucket(table: FilesTable) -> bool:
    return table.path.startswith("s3://")


def file_store(table: FilesTable, options: Options = None) -> FileStore:
    """The store of a table's files. `options`: of buckets."""
    return Bucket(table.path, options) if is_bucket(table) else Folder(table.path)
