"""The choice of the replica that ingests a source, and of its term.

One replica at a time. The term grows with each new ingester (not when the same one restarts) and is stored before the
replica receives it. Shards refuse an older term, so a replica that was cut off can write no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import WriterTerm

SILENT_MS = 2_000
"""The time that an ingester whose process runs may be without a connection before another replica takes over. A frozen
process loses its connection after 4 to 6 s (replicas/replica_connection.py)."""


@dataclass(frozen=True)
class Ingester:
    replica: str
    term: WriterTerm


@dataclass(frozen=True)
class Candidates:
    """The instance's replicas: those that exist, those that are online, and for how many milliseconds the present
    ingester has been silent. `has_ended`: its process does not run."""

    existing: Collection[str]
    online: Collection[str]
    silent_ms: int = 0
    has_ended: bool = False


def choose_ingester(current: Ingester | None, candidates: Candidates, seen: Iterable[WriterTerm]) -> Ingester | None:
    """The present ingester while it is online, shortly after, and while no other replica is; else another with a higher
    term than all in `seen`; None where no replica is online.

    A move costs the next ingester the reading of a few shards, and nothing else: its term shuts out the one before.
    """
    if current is not None and current.replica in candidates.existing:
        shortly = candidates.silent_ms < SILENT_MS and not candidates.has_ended
        if current.replica in candidates.online or shortly or not candidates.online:
            return current
    if not candidates.online:
        return None
    newest = max([*seen, current.term if current else WriterTerm(0)], default=WriterTerm(0))
    return Ingester(min(candidates.online), WriterTerm(newest + 1))
