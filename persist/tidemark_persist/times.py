"""Times, terms and shard ids.

A time is milliseconds since 1970 as a signed 64-bit integer, from 0 to 2^63 - 2. The number 2^63 - 1 stands for the
empty frontier: a shard with the upper `EMPTY` is finished, one with the since `EMPTY` has no readers.
"""

from __future__ import annotations

from typing import NewType

from tidemark_persist.errors import InvalidTime

Time = NewType("Time", int)
Term = NewType("Term", int)
ShardId = NewType("ShardId", str)

EMPTY = Time(2**63 - 1)
DELETED = Term(EMPTY)
"""The term of a shard that is being deleted: no term is newer."""


def checked_frontier(value: int, what: str) -> Time:
    """The value as a frontier (`EMPTY` is allowed). Raises InvalidTime."""
    if not 0 <= value <= EMPTY:
        raise InvalidTime(f"{what} is {value}; expected 0 to {EMPTY} ({EMPTY} being the empty frontier)")
    return Time(value)


def checked_term(value: int) -> Term:
    """The value as a writer term. Raises InvalidTime. The largest number is reserved for deleted shards."""
    if not 0 <= value < EMPTY:
        raise InvalidTime(f"the writer's term is {value}; expected 0 to {EMPTY - 1}")
    return Term(value)


def show(frontier: int) -> str:
    """A frontier as text for messages."""
    return "empty" if frontier == EMPTY else str(frontier)
