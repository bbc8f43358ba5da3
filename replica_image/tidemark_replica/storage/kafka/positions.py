"""The rows of a binding about a topic: its id, and the offset of the next record of each partition.

table    entry           value
orders   topic           kB2c...     the topic's id
orders   offset/3        1200        the next record of partition 3
orders   epoch/3         7           the epoch of the leader that wrote the record before it, where that is known
orders   event_place/3   [...]       the places in databases' logs of its last change events (`by_key/debezium.py`)
orders   joined          26392432    transactions that ended up to this position of the database's log are taken record
                                     by record, later ones are taken whole (`transactions/`)
orders   history/3       1500        where partition 3 ended when the table joined
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark_replica.storage.staged_bindings import Entry

_TOPIC, _OFFSET, _EPOCH, _EVENT_PLACE = "topic", "offset/", "epoch/", "event_place/"
_HISTORY, _JOINED = "history/", "joined"


@dataclass(frozen=True)
class Position:
    """The next records of a table. `offsets`: by partition; a partition that is missing is not begun. `event_places`,
    `epochs` and `history`: by partition, where there is one. `joined`: 0 where no transaction had ended."""

    topic_id: str
    offsets: Mapping[int, int] = field(default_factory=dict)
    event_places: Mapping[int, str] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    history: Mapping[int, int] = field(default_factory=dict)
    joined: int = 0

    def entries(self, table: str, before: Position | None) -> dict[Entry, str | None]:
        """The entries that a binding changes on the way from `before` to this position."""
        was, now = ({} if before is None else before._by_entry()), self._by_entry()
        changes: dict[Entry, str | None] = {(table, entry): None for entry in was.keys() - now.keys()}
        return changes | {(table, entry): value for entry, value in now.items()} | {(table, _TOPIC): self.topic_id}

    def _by_entry(self) -> dict[str, str]:
        """The values of all partitions, by the name of their entry."""
        values = {f"{_OFFSET}{p}": str(offset) for p, offset in self.offsets.items()}
        values |= {f"{_EPOCH}{p}": str(epoch) for p, epoch in self.epochs.items()}
        values |= {f"{_HISTORY}{p}": str(offset) for p, offset in self.history.items()}
        values |= {_JOINED: str(self.joined)} if self.joined else {}
        return values | {f"{_EVENT_PLACE}{p}": places for p, places in self.event_places.items()}


def positions(entries: Mapping[Entry, str]) -> dict[str, Position]:
    """The positions of tables, by name."""
    topics = {table: value for (table, entry), value in entries.items() if entry == _TOPIC}
    joined = {table: int(value) for (table, entry), value in entries.items() if entry == _JOINED}
    found: dict[tuple[str, str], dict[int, str]] = {}
    for (table, entry), value in entries.items():
        kind, slash, partition = entry.partition("/")
        if table in topics and kind + slash in (_OFFSET, _EPOCH, _EVENT_PLACE, _HISTORY):
            found.setdefault((table, kind + slash), {})[int(partition)] = value
    return {
        table: Position(
            topic,
            {partition: int(offset) for partition, offset in found.get((table, _OFFSET), {}).items()},
            found.get((table, _EVENT_PLACE), {}),
            {partition: int(epoch) for partition, epoch in found.get((table, _EPOCH), {}).items()},
            {partition: int(offset) for partition, offset in found.get((table, _HISTORY), {}).items()},
            joined.get(table, 0),
        )
        for table, topic in topics.items()
    }
