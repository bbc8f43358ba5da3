"""The rows of a binding about a topic: its id, and the offset of the next record of each partition.

table    entry      value
orders   topic      kB2c...     the topic's id
orders   offset/3   1200        the next record of partition 3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark_replica.storage.staged_bindings import Entry

_TOPIC, _OFFSET = "topic", "offset/"


@dataclass(frozen=True)
class Position:
    """The next records of a table. `offsets`: by partition; a partition that is missing is not begun."""

    topic_id: str
    offsets: Mapping[int, int] = field(default_factory=dict)

    def entries(self, table: str, before: Position | None) -> dict[Entry, str | None]:
        """The entries that a binding changes on the way from `before` to this position."""
        gone = () if before is None else before.offsets.keys() - self.offsets.keys()
        changes: dict[Entry, str | None] = {(table, f"{_OFFSET}{p}"): None for p in gone}
        changes |= {(table, f"{_OFFSET}{p}"): str(offset) for p, offset in self.offsets.items()}
        return changes | {(table, _TOPIC): self.topic_id}


def positions(entries: Mapping[Entry, str]) -> dict[str, Position]:
    """The positions of tables, by name."""
    found = {table: Position(value, {}) for (table, entry), value in entries.items() if entry == _TOPIC}
    offsets: dict[str, dict[int, int]] = {table: {} for table in found}
    for (table, entry), value in entries.items():
        if entry.startswith(_OFFSET):
            offsets[table][int(entry.removeprefix(_OFFSET))] = int(value)
    return {table: Position(position.topic_id, offsets[table]) for table, position in found.items()}
