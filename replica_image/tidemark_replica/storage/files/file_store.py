"""The place of a table's files. A store is a value: Spark's tasks get a copy of it."""

from __future__ import annotations

from typing import BinaryIO, Protocol

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.folder import Folder
from tidemark_replica.storage.files.listing import FileVersion, Listing


class FileStore(Protocol):
    """The files directly below one place."""

    def list(self, pattern: str) -> Listing:
        """The files whose names match the pattern, without hidden and unfinished ones. Raises SourceUnusable."""

    def version_of(self, name: str) -> FileVersion | None:
        """The present version of the file; None where it is gone."""

    def is_complete(self, name: str, format: str, compression: str) -> bool:
        """Whether the file looks finished. An empty text file does."""

    def open(self, file: FileVersion) -> BinaryIO:
        """The bytes of the file. Raises FileNotFoundError, OSError."""


def file_store(table: FilesTable) -> FileStore:
    """The store of a table's files."""
    return Folder(table.path)
