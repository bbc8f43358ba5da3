"""Files of updates that a step's tasks leave for each other: Arrow, a record batch per chunk.

with UpdatesFile(folder, "shared0.7.arrow", types) as out:      named for the attempt, so nobody else writes it
    out.write(chunk)
out.published()                                                  what the report says of it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.batches.full_disk import raising_disk_full
from tidemark_replica.arrangement.rows.updates import Updates, times, update_schema
from tidemark_replica.render.task.description import PublishedFiles


class UpdatesFile:
    """A file being written."""

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
        """Add a chunk; empty ones leave no trace. `timed`: remember which times are in it."""
        if updates.num_rows:
            with raising_disk_full(self._path.parent):
                self._writer.write_batch(updates)
            self._rows += updates.num_rows
            if timed:
                self._times.update(np.unique(times(updates)).tolist())

    def published(self) -> PublishedFiles:
        """What there is to be read."""
        return PublishedFiles((self.file,), self._rows, tuple(sorted(self._times)))


def read_updates(path: Path) -> Iterator[Any]:
    """The chunks of a file, mapped."""
    with pa.memory_map(str(path), "r") as source:
        reader = pa.ipc.open_file(source)
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
