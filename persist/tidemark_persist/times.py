"""Times, terms and shard ids.

A time is milliseconds since 1970 in a signed 64-bit integer, from 0 to 2^63 - 2. The one number left stands
for the empty frontier: a shard whose upper is `EMPTY` is finished, one whose since is `EMPTY` is read by
nobody.
"""

from __future__ import annotations

from typing import NewType

from tidemark_persist.errors import InvalidTime

Time = NewType("Time", int)
Term = NewType("Term", int)
ShardId = NewType("ShardId", str)

EMPTY = Time(2**63 - 1)
DELETED = Term(EMPTY)  # the term of a shard that is being deleted: nobody has a newer one


def checked_frontier(value: int, what: str) -> Time:
    """A frontier (`EMPTY` allowed), or `InvalidTime`."""
    if not 0 <= value <= EMPTY:
        raise InvalidTime(f"{what} is {value}; expected 0 to {EMPTY} ({EMPTY} being the empty frontier)")
    return Time(value)


def checked_term(value: int) -> Term:
    """A writer's term, or `InvalidTime`. The largest number is kept for deleted shards."""
    if not 0 <= value < EMPTY:
        raise InvalidTime(f"the writer's term is {value}; expected 0 to {EMPTY - 1}")
    return Term(value)


def show(frontier: int) -> str:
    """A frontier in the words of messages."""
    return "empty" if frontier == EMPTY else str(frontier)
