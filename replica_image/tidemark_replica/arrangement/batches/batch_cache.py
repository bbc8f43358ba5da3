"""Open batches of one process: what has been read, or just been written, need not be opened again.

    step, peek ──segments──> [file: segments] [file: segments] ...      the least recently used is closed first
                                  ▲
    a thread of the process ──────┘ every LOOK_SECONDS: whose file is gone is let go of

A mapping keeps a deleted file's blocks on disk. What a merge has replaced is asked for by nobody again, and a process
may have nothing to do for hours: so it is time that lets go of it, and not the next step.
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
LOOK_SECONDS = 10.0


class BatchCache:
    """For any threads. What is read of it stays readable, whatever is let go."""

    def __init__(self, directory: Path, *, limit: int = 512, random_access: bool = False) -> None:
        self._directory = directory
        self._limit = limit
        self._random_access = random_access
        self._mutex = threading.RLock()
        self._open: OrderedDict[str, tuple[Segment, ...]] = OrderedDict()
        self._small = SmallBatches()
        self._looked_after = False
        self.opened = 0
        """How many batches it had to open so far: cold reads."""

    def segments(self, ref: BatchRef, layout: Layout) -> tuple[Segment, ...]:
        """The batch's segments, mapped now or before."""
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
        """The segments of neighbours; several are small (`small_batches`), and come as one."""
        if len(refs) == 1:
            return self.segments(refs[0], layout)

        def in_order(rows: Any) -> Segment:
            order = order_by_hash(file_hashes(rows)) if layout.order is None else file_order(rows, layout).order
            return Segment.of(rows.take(pa.array(order)))

        with self._mutex:
            return (self._small.combined(refs, lambda ref: self.segments(ref, layout), in_order),)

    def keep(self, ref: BatchRef, rows: Any) -> tuple[Segment, ...] | None:
        """What this process has just written as `ref`, one segment: if it is small it need not be opened any more."""
        if not is_small(rows):
            return None
        segments = (Segment.of(rows),)
        with self._mutex:
            self._add(ref.file, segments)
        return segments

    def close_deleted(self) -> None:
        """Nobody waits meanwhile: files are looked for, and mappings end, beside the lock."""
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
        if not self._looked_after:
            self._looked_after = _LOOKING.after(self)


class _DeletedFileWatch:
    """The thread, from the first batch on that is opened here; it keeps no cache alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caches: WeakSet[BatchCache] = WeakSet()
        self._runs = False

    def after(self, cache: BatchCache) -> bool:
        """Whether the cache is looked after from now on; else it is to be asked again."""
        with self._lock:
            self._caches.add(cache)
            if not self._runs:
                try:
                    threading.Thread(target=self._run, name="let go of deleted batches", daemon=True).start()
                except RuntimeError:  # the system allows no more threads now
                    return False
                self._runs = True
        return True

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                self._look()
            except Exception:
                LOG.exception("what is gone from disk is let go of later")

    def _look(self) -> None:
        with self._lock:
            caches = list(self._caches)
        for cache in caches:
            cache.close_deleted()


_LOOKING = _DeletedFileWatch()
