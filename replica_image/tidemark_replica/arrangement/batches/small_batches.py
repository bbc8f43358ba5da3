"""Small neighbours of a spine as one sorted segment in memory, so that a probe searches once and not once per batch.

    manifest   [1,000,000] [60,000] [100] [100] [100]            the next step's      ... [100] [100] [100] [100]
    probed      its file    its file  └──── one ────┘                                      └──── one ────┘ + the new one

Steps of a hundred rows leave batches of about as many, which are merged only when there are eight. What is here is a
copy of what their files say, and found by the files' names: it is used for as long as a manifest has these batches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from tidemark_replica.arrangement.batches.batch import BatchRef, Segment

KEPT_BYTES = 1 << 16
"""A batch that takes no more memory than that stays open from when it is written."""
RUN_BYTES = 4 * KEPT_BYTES
"""What batches that are put together may take in all."""


class SmallBatches:
    """One run per arrangement and bucket; those of the arrangements least recently used are let go first."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, int], tuple[list[str], Segment]] = OrderedDict()

    def together(
        self, refs: Sequence[BatchRef], opened: Callable[[BatchRef], Iterable[Segment]], made: Callable[[Any], Segment]
    ) -> Segment:
        """The rows of neighbours, `opened` one by one and `made` a segment in a file's order."""
        key, files = (refs[0].file.partition("/")[0], refs[0].bucket), [ref.file for ref in refs]
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
        """Of which there are copies here."""
        return {file for files, _ in self._known.values() for file in files}

    def forget(self, gone: Set[str]) -> None:
        """These files are no more, so no manifest has them."""
        for key in [key for key, (files, _) in self._known.items() if not gone.isdisjoint(files)]:
            del self._known[key]


def runs_of_small(refs: Iterable[BatchRef]) -> Iterator[list[BatchRef]]:
    """The batches, oldest first; small neighbours side by side."""
    run: list[BatchRef] = []
    size = 0
    for ref in refs:
        takes = ref.bytes if ref.bytes <= KEPT_BYTES else RUN_BYTES + 1
        if run and size + takes > RUN_BYTES:
            yield run
            run, size = [], 0
        run.append(ref)
        size += takes
    if run:
        yield run
