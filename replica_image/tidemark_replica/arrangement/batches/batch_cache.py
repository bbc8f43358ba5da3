"""The open batches of one process: a batch that the process has read or written is not opened again.

    step, peek ──segments──> [file: segments] [file: segments] ...      the least recently used is closed first
                                  ▲
    a thread of the process ──────┘ every CHECK_SECONDS: closes batches whose files are deleted

A mapping keeps the blocks of a deleted file on disk. No reader asks again for a batch that a merge has replaced, and a
process may be idle for hours, so the thread closes deleted files by time and not with the next step.
"""

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import BatchRef, Segment, is_small, open_batch
from tidemark_replica.arrangement.batches.small_batches import SmallBatches
from tidemark_replica.arrangement.rows.grouping import order_by_hash
from tidemark_replica.arrangement.rows.layout import Layout, file_hashes
from tidemark_replica.arrangement.rows.value_order import file_order

LOG = logging.getLogger(__name__)
CHECK_SECONDS = 10.0


class BatchCache:
    """Safe for any threads. Segments that a caller holds stay readable after they have been closed here."""

    def __init__(self, directory: Path, *, limit: int = 512, random_access: bool = False) -> None:
        self._directory = directory
        self._limit = limit
        self._random_access = random_access
        self._mutex = threading.RLock()
        self._open: OrderedDict[str, tuple[Segment, ...]] = OrderedDict()
        self._small = SmallBatches()
        self._watched = False
        self.opened = 0
        """The number of batches opened so far (cold reads)."""

    def segments(self, ref: BatchRef, layout: Layout) -> tuple[Segment, ...]:
        """The batch's segments, from memory or mapped now. Raises BatchUnreadable."""
        with self._mutex:
            found = self._open.get(ref.file)
            if found is not None:
                self._open.move_to_end(ref.file)
                return found
            self.opened += 1
            segments = open_batch(self._directory, ref, layout, random_access=self._random_access)
            self._add(ref.file, segments)
            return segments

    def combined(self, refs: Sequence[BatchRef], layout: Layout) -> tuple[Segment, ...]:
        """The segments of neighbouring batches; several small ones (`small_batches`) come as one segment."""
        if len(refs) == 1:
            return self.segments(refs[0], layout)

        def in_order(rows: Any) -> Segment:
            order = order_by_hash(file_hashes(rows)) if layout.order is None else file_order(rows, layout).order
            return Segment.of(rows.take(pa.array(order)))

        with self._mutex:
            return (self._small.combined(refs, lambda ref: self.segments(ref, layout), in_order),)

    def keep(self, ref: BatchRef, rows: Any) -> tuple[Segment, ...] | None:
        """Keep `rows`, which this process has just written as `ref`, open if they are small; else return None."""
        if not is_small(rows):
            return None
        segments = (Segment.of(rows),)
        with self._mutex:
            self._add(ref.file, segments)
        return segments

    def close_deleted(self) -> None:
        """Close batches whose files are deleted. Looks for files, and unmaps them, outside the lock."""
        with self._mutex:
            known = {*self._open, *self._small.files()}
        gone = {file for file in known if not os.path.exists(f"{self._directory}/{file}")}
        if gone:
            with self._mutex:
                ended = [self._open.pop(file, None) for file in gone]
                self._small.forget(gone)
            del ended

    def _add(self, file: str, segments: tuple[Segment, ...]) -> None:
        self._open[file] = segments
        if len(self._open) > self._limit:
            self._open.popitem(last=False)
        if not self._watched:
            self._watched = _WATCH.watch(self)


class _DeletedFileWatch:
    """The thread that closes deleted batches. It starts with the first batch, and keeps no cache alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caches: WeakSet[BatchCache] = WeakSet()
        self._runs = False

    def watch(self, cache: BatchCache) -> bool:
        """Watch the cache. Returns False if no thread can be started now; the caller tries again."""
        with self._lock:
            self._caches.add(cache)
            if not self._runs:
                try:
                    threading.Thread(target=self._run, name="close deleted batches", daemon=True).start()
                except RuntimeError:  # the system allows no more threads now
                    return False
                self._runs = True
        return True

    def _run(self) -> None:
        while True:
            time.sleep(CHECK_SECONDS)
            try:
                self._check()
            except Exception:
                LOG.exception("deleted batches could not be closed; the next round tries again")

    def _check(self) -> None:
        with self._lock:
            caches = list(self._caches)
        for cache in caches:
            cache.close_deleted()


_WATCH = _DeletedFileWatch()
