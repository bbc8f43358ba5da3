"""The times that reads go back: the since trails the upper by a lag. And the one bound that replicas' clocks are held
to.

    upper 100_000, lag 60_000  ->  since 40_000

A finished collection (empty upper) keeps its since: an empty since would mean that the collection was dropped.
"""

from __future__ import annotations

from tidemark_protocol.frontier import Frontier

KEEP_ALL_MS = 1 << 62
"""The lag before any owner has given one: nothing is compacted."""
MAX_AHEAD_MS = 20_000
"""The milliseconds beyond this clock that an ingestion may mint. Tables that do not change run ahead by half; the
rest is for a replica's clock that is ahead."""
MARGIN_MS = 10_000
"""An upper is a millisecond beyond the last time minted, and this clock may be behind the one that gave the bound: it
was set back meanwhile, or is a new leader's."""
BELIEVED_AHEAD_MS = MAX_AHEAD_MS + MARGIN_MS


def trailing(upper: Frontier, lag_ms: int) -> Frontier:
    """The since that lets reads go back by `lag_ms`; the minimum for a finished collection, which keeps its since."""
    return Frontier.minimum() if upper.time is None else Frontier.at(max(0, upper.time - lag_ms))


def before(upper: Frontier) -> Frontier:
    """The last complete time; empty for a finished collection, the minimum where nothing is complete."""
    return Frontier.empty() if upper.time is None else Frontier.at(max(0, upper.time - 1))


def bounded(upper: Frontier, now_ms: int) -> Frontier:
    """`upper`, but at most `BELIEVED_AHEAD_MS` beyond the clock: a replica whose clock is ahead must not drive
    compaction."""
    return upper if is_vouched(upper, now_ms) else Frontier.at(now_ms + BELIEVED_AHEAD_MS)


def is_vouched(upper: Frontier, now_ms: int) -> bool:
    """Whether the frontier is within `BELIEVED_AHEAD_MS` of the clock, or empty."""
    return upper.time is None or upper.time <= now_ms + BELIEVED_AHEAD_MS
