"""New files of a table: which are bound at a tick, and which wait.

folder   everything is listed at each tick (`FolderArrivals`)
bucket   the listing goes on from a name, some pages at a tick (`bucket_arrivals.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.bucket import Bucket
from tidemark_replica.storage.files.bucket_arrivals import BucketArrivals
from tidemark_replica.storage.files.file_store import FileStore
from tidemark_replica.storage.files.listing import Arrived, BoundFiles, FileVersion, WaitingFile
from tidemark_replica.storage.files.streamed.compression import compression_of

_ENDS = {"parquet": "has no parquet footer", "avro": "does not end with its sync marker"}
"""The part that an unfinished file lacks, by format."""


def arrivals_of(table: FilesTable, store: FileStore) -> FolderArrivals | BucketArrivals:
    return BucketArrivals(table, store) if isinstance(store, Bucket) else FolderArrivals(table, store)


class FolderArrivals:
    """The arrivals of a table whose files are in a folder: oldest first, once two looks saw the same version, and the
    file looks complete."""

    def __init__(self, table: FilesTable, folder: FileStore) -> None:
        self._table, self._store = table, folder
        self._last: dict[str, FileVersion] = {}

    def resume(self, bound: Iterable[FileVersion]) -> None:
        """Begins anew; `bound`: all bound files."""
        self._last = {}

    def look(self, known: BoundFiles, released: Mapping[str, FileVersion]) -> Arrived:
        """The files to bind now, at most `max_files_per_tick` of TICK_BYTES; none that is `known`, or `released` in
        this version. Raises SourceUnusable, StorageError."""
        listing = self._store.list(self._table.pattern)
        unbound, changed = known.split(listing.files)
        arrived = Arrived(waiting=[*listing.refused], changed=changed)
        new = [file for file in unbound if released.get(file.name) != file]
        before, self._last = self._last, {file.name: file for file in new}
        is_full = False  # a smaller file waits behind one that has no room
        for file in sorted(new, key=lambda f: (f.modified_ns, f.name)):
            # new, or still growing: checked again at the next tick
            if before.get(file.name) != file or is_full:
                arrived.waiting.append(WaitingFile(file.name, file.size))
            elif reason := self._unfinished(file):
                arrived.waiting.append(WaitingFile(file.name, file.size, reason))
            elif not arrived.add(file, self._table.max_files_per_tick):
                is_full = True
                arrived.waiting.append(WaitingFile(file.name, file.size))
        arrived.unbound = len(new) - len(arrived.files)
        return arrived

    def confirm(self, bound: Iterable[FileVersion]) -> None:
        """These files were bound."""
        for file in bound:
            self._last.pop(file.name, None)

    def _unfinished(self, file: FileVersion) -> str:
        """The reason why the file looks half written; empty where it looks complete."""
        if self._store.is_complete(file.name, self._table.format, compression_of(self._table, file.name)):
            return ""
        end = _ENDS.get(self._table.format, "does not end with a newline")
        return f"waiting, it {end if file.size else 'is empty'} (half written?)"
