"""Neighbouring small batches of a spine, combined into one sorted segment in memory: a probe searches it once.

    manifest   [1,000,000] [60,000] [100] [100] [100]            the next step's      ... [100] [100] [100] [100]
    probed      its file    its file  └──── one ────┘                                      └──── one ────┘ + the new one

Steps of a hundred rows leave batches of about a hundred rows, which are merged when there are eight. A combined segment
is a copy of its files, found by their names. It is used as long as a manifest has these batches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

import pyarrow as pa

from tidemark_replica.arrangement.batches.batch import SMALL_BYTES, BatchRef, Segment

RUN_BYTES = 4 * SMALL_BYTES
"""The largest run of small batches, in bytes."""


class SmallBatches:
    """Keeps one run per arrangement, and forgets the least recently used run first."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._known: OrderedDict[str, tuple[list[str], Segment]] = OrderedDict()

    def combined(
        self, refs: Sequence[BatchRef], opened: Callable[[BatchRef], Iterable[Segment]], made: Callable[[Any], Segment]
    ) -> Segment:
        """Return the rows of neighbouring batches as one segment.

        `opened` opens one batch; `made` sorts rows into a segment in the order of a file.
        """
        key, files = refs[0].file.partition("/")[0], [ref.file for ref in refs]
        before, segment = self._known.get(key, ([], None))
        if segment is None or before != files[: len(before)]:
            before, parts = [], []
        else:
            parts = [segment.rows]
        if segment is None or before != files:
            parts += [part.rows for ref in refs[len(before) :] for part in opened(ref)]
            segment = made(pa.concat_batches(parts))
            self._known[key] = files, segment
        self._known.move_to_end(key)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
        return segment

    def files(self) -> set[str]:
        """The batch files that runs hold copies of."""
        return {file for files, _ in self._known.values() for file in files}

    def forget(self, gone: Set[str]) -> None:
        """Drop the runs with files in `gone`: those files are deleted, so no manifest names them."""
        for key in [key for key, (files, _) in self._known.items() if not gone.isdisjoint(files)]:
            del self._known[key]


def small_runs(refs: Iterable[BatchRef]) -> Iterator[list[BatchRef]]:
    """Group the batches, oldest first, so that neighbouring small ones are in one list."""
    run: list[BatchRef] = []
    size = 0
    for ref in refs:
        takes = ref.bytes if ref.bytes <= SMALL_BYTES else RUN_BYTES + 1
        if run and size + takes > RUN_BYTES:
            yield run
            run, size = [], 0
        run.append(ref)
        size += takes
    if run:
        yield run
