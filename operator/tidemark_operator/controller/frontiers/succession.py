"""The comparison of a new revision's frontiers with those of the revision that it is to succeed.

    predecessor   write ────────────────────► 900          an index, or a table that it writes
    successor     write ──────────────► 870                an index, or a table of its own
                  output ─────────────► 870                a table that the predecessor still writes: read-only

Both advance with every tick, so there may be no moment at which all exports are level. A takeover needs that they were
level lately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_protocol.ids import GlobalId

LATELY_MS = 10_000


@dataclass(frozen=True)
class Succession:
    """`predecessors`: for each export, the export of the same name that it succeeds. `read_only`: sinks whose shards
    the predecessor writes; the successor may write all others from the beginning."""

    predecessors: Mapping[GlobalId, GlobalId] = field(default_factory=dict)
    read_only: frozenset[GlobalId] = frozenset()


def is_level(succession: Succession, exports: Iterable[Collection], known: Mapping[GlobalId, Collection]) -> bool:
    """Whether every export is hydrated and as far as its predecessor now. `known`: all collections; an export
    without one is behind."""
    return all(_is_level(succession, export, known) for export in exports)


def _is_level(succession: Succession, export: Collection, known: Mapping[GlobalId, Collection]) -> bool:
    before = known.get(succession.predecessors.get(export.id, export.id))
    reached = export.output if export.id in succession.read_only else export.write
    if not export.hydrated or reached is None:
        return False
    if before is None or before.write is None or not before.hydrated or before.write.is_empty:
        return True  # an index or table that is finished has no time that the successor could be behind
    return reached >= before.write
