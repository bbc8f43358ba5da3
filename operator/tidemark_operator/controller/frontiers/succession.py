"""A revision beside the one that it is to succeed: when it is as far as that one.

    predecessor   write ────────────────────► 900          an index, or a table that it writes
    successor     write ──────────────► 870                an index, or a table of its own
                  output ─────────────► 870                a table that the predecessor still writes: read-only

Both move with every tick, so that there may be no moment at which all are level: each is level now and then, and what
counts is that it was so lately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_protocol.ids import GlobalId

LATELY_MS = 10_000


@dataclass(frozen=True)
class Succession:
    """`predecessors`: of each export that succeeds one of the same name, that one. `read_only`: the sinks whose shards
    the predecessor writes; all others may write from the beginning."""

    predecessors: Mapping[GlobalId, GlobalId] = field(default_factory=dict)
    read_only: frozenset[GlobalId] = frozenset()


def is_level(succession: Succession, exports: Iterable[Collection], known: Mapping[GlobalId, Collection]) -> bool:
    """Whether every export is hydrated and as far as its predecessor now; one that is not there is behind."""
    return all(_is_level(succession, export, known) for export in exports)


def _is_level(succession: Succession, export: Collection, known: Mapping[GlobalId, Collection]) -> bool:
    before = known.get(succession.predecessors.get(export.id, export.id))
    reached = export.output if export.id in succession.read_only else export.write
    if not export.hydrated or reached is None:
        return False
    if before is None or before.write is None or not before.hydrated or before.write.is_empty:
        return True  # what is finished is not a time behind which another revision, of other inputs, could be
    return reached >= before.write
