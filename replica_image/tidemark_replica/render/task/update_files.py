"""Files of updates that tasks of a step write for each other: Arrow IPC, one record batch per chunk.

with UpdatesFile(folder, "shared0.7.arrow", types) as out:      the name has the attempt, so no other task writes it
    out.write(chunk)
out.published()                                                  the report's entry
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.full_disk import raising_disk_full
from tidemark_replica.arrangement.rows.updates import Updates, times, update_schema
from tidemark_replica.render.task.description import PublishedFiles


class UpdatesFile:
    """A file that is being written."""

    def __init__(self, folder: Path, file: str, types: Iterable[pa.DataType]) -> None:
        self.file, self._path = file, folder / file
        self._schema = update_schema(types)
        self._rows = 0
        self._times: set[int] = set()

    def __enter__(self) -> UpdatesFile:
        with raising_disk_full(self._path.parent):
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_file(self._sink, self._schema)
        return self

    def __exit__(self, *_: object) -> None:
        with raising_disk_full(self._path.parent):
            self._writer.close()
            self._sink.close()

    def write(self, updates: Updates, *, timed: bool = False) -> None:
        """Append a chunk; an empty one writes nothing. `timed`: remember its times. Raises DiskFull."""
        if updates.num_rows:
            with raising_disk_full(self._path.parent):
                self._writer.write_batch(updates)
            self._rows += updates.num_rows
            if timed:
                self._times.update(np.unique(times(updates)).tolist())

    def published(self) -> PublishedFiles:
        """The file, its rows and times, for the report."""
        return PublishedFiles((self.file,), self._rows, tuple(sorted(self._times)))
