"""Ids and times, each with a type of its own so that they cannot be confused.

GlobalId      one collection: a source table, an index, a sink, an object inside a dataflow
ReplicaId     one replica of an instance
Epoch         (leadership term of the controller, number of the connection under that term)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

GlobalId = NewType("GlobalId", str)
LocalId = NewType("LocalId", str)
ReplicaId = NewType("ReplicaId", str)
ShardId = NewType("ShardId", str)
Digest = NewType("Digest", str)
WriterTerm = NewType("WriterTerm", int)
Time = NewType("Time", int)

INSTANCE = GlobalId("instance")
"""The id of a Status that is about the whole instance rather than about one collection."""

MIN_TIME = Time(0)
MAX_TIME = Time(2**63 - 2)


@dataclass(frozen=True, order=True)
class Epoch:
    """The identity of a connection to a replica. A connection of a higher epoch replaces one of a lower epoch, never
    the reverse.
    """

    leader_term: int
    connection: int

    def __str__(self) -> str:
        return f"{self.leader_term}.{self.connection}"
