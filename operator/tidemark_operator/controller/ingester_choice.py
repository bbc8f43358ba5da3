"""Which replica ingests a source, and under which term.

One replica at a time. The term grows with each new ingester (not when the same one restarts) and is stored before the
replica receives it. Shards refuse an older term, so a replica that was cut off can write no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import WriterTerm

GRACE_MS = 30_000


@dataclass(frozen=True)
class Ingester:
    replica: str
    term: WriterTerm


@dataclass(frozen=True)
class Candidates:
    """The instance's replicas: those that exist, those that are online, and for how many milliseconds the present
    ingester has been silent."""

    existing: Collection[str]
    online: Collection[str]
    silent_ms: int = 0


def choose_ingester(current: Ingester | None, candidates: Candidates, seen: Iterable[WriterTerm]) -> Ingester | None:
    """The present ingester while it may come back, else another with a higher term than all in `seen`; None where no
    replica is online."""
    if current is not None and current.replica in candidates.existing:
        patient = candidates.silent_ms < GRACE_MS or not candidates.online
        if current.replica in candidates.online or patient:
            return current
    if not candidates.online:
        return None
    newest = max([*seen, current.term if current else WriterTerm(0)], default=WriterTerm(0))
    return Ingester(min(candidates.online), WriterTerm(newest + 1))
