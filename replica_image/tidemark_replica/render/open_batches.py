"""Batches that peeks keep open, for several threads at once.

Opening a batch takes as long as a lookup in it; a lookup in a large index opens one or two files, again and again the
same. What a merge has made superfluous is let go by `maintain`, so that its blocks on disk are free.
"""

from __future__ import annotations

import threading
from pathlib import Path

from tidemark_replica.arrangement.batch import BatchCache, BatchRef, Segment
from tidemark_replica.arrangement.layout import Layout


class OpenBatches(BatchCache):
    """A cache that may be used from any thread. What is read of it stays readable, whatever is let go."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._mutex = threading.Lock()

    def segments(self, ref: BatchRef, layout: Layout) -> tuple[Segment, ...]:
        with self._mutex:
            return super().segments(ref, layout)

    def maintain(self) -> None:
        """Now and then: files that are gone need not be mapped any more."""
        with self._mutex:
            self._let_go_of_deleted()
