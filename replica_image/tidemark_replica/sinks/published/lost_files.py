"""Whether the files of a published table are still in the store.

A publication asks for some of them, in turn: LOOK_FILES each LOOK_SECONDS. Where one is not there the table is written
anew, since its readers fail until then, and a commit that does not touch the file would leave it so.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from tidemark_persist import Storage
from tidemark_replica.sinks.published.published_table import PublishedFile

LOOK_SECONDS = 30.0
LOOK_FILES = 16


@dataclass
class FileLook:
    """The look of one destination, by one publication at a time."""

    clock: Callable[[], float] = time.monotonic
    looked_for: str = ""
    """The last path that was asked for."""
    due: float = float("-inf")

    def find_lost(self, storage: Storage, files: Iterable[PublishedFile]) -> str:
        """The path of a file that the store has no more; empty: there is none among those that were asked for. Raises
        StorageError: the store fails."""
        if self.clock() < self.due:
            return ""
        paths = sorted(file.path for file in files)
        start = bisect_right(paths, self.looked_for)
        asked = [*paths[start:], *paths[:start]][:LOOK_FILES]
        found = next((path for path in asked if storage.stat(unquote(path)) is None), "")  # the log escapes paths
        if found:
            return found  # and again, until the table is written anew
        self.looked_for = asked[-1] if asked else ""
        self.due = self.clock() + LOOK_SECONDS
        return ""
