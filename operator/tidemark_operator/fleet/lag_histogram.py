"""The lag of each export behind the clock, sampled once a second: a histogram whose buckets are powers of two seconds.

    lag 0.8 s ─► up to 1        lag 1.2 s ─► up to 2        ...        lag of two days ─► the last one

An export that is not readable yet, or finished, has no lag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId

BUCKETS = 16
"""Lags up to 1, 2, 4, ... 16,384 seconds, and everything beyond."""


class LagHistogram:
    """The lags of one instance's exports. Exports that are gone are forgotten."""

    def __init__(self) -> None:
        self._counts: dict[GlobalId, list[int]] = {}
        self.total = [0] * BUCKETS
        self.sum_seconds = 0.0

    def sample(self, write: Iterable[tuple[GlobalId, Frontier | None]], now_ms: int) -> None:
        """Add one second's sample: the write frontiers of all exports."""
        counts = {}
        for id, frontier in write:
            kept = counts[id] = self._counts.get(id) or [0] * BUCKETS
            if frontier is None or frontier.time is None:
                continue
            lag_ms = max(now_ms - frontier.time, 0)
            bucket = bucket_of(lag_ms)
            kept[bucket] += 1
            self.total[bucket] += 1
            self.sum_seconds += lag_ms / 1000
        self._counts = counts

    def histograms(self) -> Iterator[tuple[GlobalId, Mapping[int, int]]]:
        """The nonempty buckets of each export: upper bound in seconds, and count."""
        for id, counts in self._counts.items():
            yield id, {1 << bucket: count for bucket, count in enumerate(counts) if count}


def bucket_of(lag_ms: int) -> int:
    """The first bucket whose bound is not below the lag in milliseconds; the last bucket has no bound."""
    return min(((lag_ms + 999) // 1000 - 1).bit_length() if lag_ms > 1000 else 0, BUCKETS - 1)
