"""Identities and times, each a type of its own so that one is never passed for another.

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
"""In a Status: what a replica says of its whole instance, rather than of one collection."""

MIN_TIME = Time(0)
MAX_TIME = Time(2**63 - 2)


@dataclass(frozen=True, order=True)
class Epoch:
    """Who speaks to a replica. Ordered: a higher epoch replaces a lower one, never the other way round."""

    leader_term: int
    connection: int

    def __str__(self) -> str:
        return f"{self.leader_term}.{self.connection}"
