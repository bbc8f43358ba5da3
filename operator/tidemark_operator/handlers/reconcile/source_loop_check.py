"""A source must not read what Tidemark itself writes: the tables of every namespace are below the instance's storage.

<storage location>/...                           refused: rows of other users, and files that compaction removes
<storage location>/<own namespace>/_copies/NAME  allowed: `kubectl tidemark copy` writes it for such readers
                                                 (not in a bucket: files of attempts that failed are there, too)
"""

from __future__ import annotations

from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_operator.resources.manifest.locations import is_in, normalised
from tidemark_protocol.copy_location import copies_folder, copy_location
from tidemark_protocol.plan.ingestion import DeltaSource, FilesSource, SourceSpec


def reads_own_tables(source: SourceSpec, storage_location: str, namespace: str) -> IngestionFailure | None:
    """The reason why the source is refused; None if it may be read. Paths are absolute and have no `.` or `..`; so has
    the storage location, unless it is in an object store."""
    if isinstance(source, DeltaSource):
        return _follows_own_tables(source, storage_location)
    if not isinstance(source, FilesSource):
        return None
    storage = normalised(storage_location)
    copies = copies_folder(storage, namespace)
    for table in source.tables:
        path = normalised(table.path)
        if is_in(path, storage) and not _is_copy(copies, path):
            but = f" (of that folder, only what is copied to {copies} can be read)" if storage.startswith("/") else ""
            return IngestionFailure(
                "ReadsOwnTables",
                f"table {table.name}: {path} is in {storage}, where this instance keeps its tables; make a DataSource "
                f"that reads elsewhere{but}",
            )
    return None


def _follows_own_tables(source: DeltaSource, storage_location: str) -> IngestionFailure | None:
    storage = normalised(storage_location)
    for table in source.tables:
        path = normalised(table.path)
        if is_in(path, storage):
            return IngestionFailure(
                "ReadsOwnTables",
                f"table {table.name}: {path} is in {storage}, where this instance keeps its tables; a Dataflow reads "
                "these by their names, without a DataSource",
            )
    return None


def _is_copy(copies: str, path: str) -> bool:
    if not path.startswith("/"):
        return False
    try:
        return path.startswith(f"{copies}/") and copy_location(copies, path) == path
    except ValueError:
        return False
