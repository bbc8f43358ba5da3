"""The rows of a binding about a topic: its id, and the offset of the next record of each partition.

table    entry           value
orders   topic           kB2c...     the topic's id
orders   offset/3        1200        the next record of partition 3
orders   epoch/3         7           the epoch of the leader that wrote the record before it, where that is known
orders   begin/3         700         the first record that the table read of partition 3, unless it passed over a gap
orders   records         480/1200    the records that it read since `begin`, as of a sum of `offset` over all partitions
orders   event_place/3   [...]       the places in databases' logs of its last change events (`by_key/debezium.py`)
orders   joined          26392432    transactions that ended up to this position of the database's log are taken record
                                     by record, later ones are taken whole (`transactions/`)
orders   history/3       1500        where partition 3 ended when the table joined
orders.2 begun           orders      the table began with all records that another one had by then (`read_again.py`)

A release that does not know `begin` moves the offsets, and leaves `records` as it is: then neither counts any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark_replica.storage.staged_bindings import Entry

_TOPIC, _JOINED, _BEGIN, _RECORDS = "topic", "joined", "begin/", "records"
_FIELDS = {
    "offset/": "offsets",
    "epoch/": "epochs",
    "history/": "history",
    "event_place/": "event_places",
    _BEGIN: "begins",
}
"""The fields that have a value for each partition, by the prefix of their entries' names."""


@dataclass(frozen=True)
class Position:
    """The next records of a table. `offsets`: by partition; a partition that is missing is not begun. `event_places`,
    `epochs` and `history`: by partition, where there is one. `joined`: 0 where no transaction had ended. `begins`: the
    first records that were read, by partition, and `records`: how many were read from there on; none where that is not
    known, or records were passed over."""

    topic_id: str
    offsets: Mapping[int, int] = field(default_factory=dict)
    event_places: Mapping[int, str] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    history: Mapping[int, int] = field(default_factory=dict)
    joined: int = 0
    begins: Mapping[int, int] = field(default_factory=dict)
    records: int | None = None

    @property
    def knows_records(self) -> bool:
        """Whether the records that the table read are all from `begins` to `offsets`, and are counted."""
        return self.records is not None and self.begins.keys() == self.offsets.keys()

    def moved(
        self, offsets: Mapping[int, int], first: Mapping[int, int], records: int, **others: Mapping[int, Any]
    ) -> Position:
        """The position behind so many further records. `first`: where partitions begin that were not begun. `others`:
        `event_places`, `epochs` and `history`."""
        begins = {**self.begins, **{p: first[p] for p in offsets if p not in self.offsets}}
        known = None if self.records is None else self.records + records
        return replace(self, offsets=dict(offsets), begins=begins, records=known, **others)  # type: ignore[arg-type]

    def entries(self, table: str, before: Position | None) -> dict[Entry, str | None]:
        """The entries that a binding changes on the way from `before` to this position."""
        was, now = ({} if before is None else before._by_entry()), self._by_entry()
        changes: dict[Entry, str | None] = {(table, entry): None for entry in was.keys() - now.keys()}
        return changes | {(table, entry): value for entry, value in now.items()} | {(table, _TOPIC): self.topic_id}

    def _by_entry(self) -> dict[str, str]:
        """The values of all partitions, by the name of their entry."""
        known = {kind: getattr(self, name) for kind, name in _FIELDS.items() if kind != _BEGIN or self.knows_records}
        values = {f"{kind}{p}": str(value) for kind, of in known.items() for p, value in of.items()}
        values |= {_JOINED: str(self.joined)} if self.joined else {}
        return values | ({_RECORDS: f"{self.records}/{sum(self.offsets.values())}"} if self.knows_records else {})


def positions(entries: Mapping[Entry, str]) -> dict[str, Position]:
    """The positions of tables, by name."""
    of_table: dict[str, dict[str, str]] = {}
    for (table, entry), value in entries.items():
        of_table.setdefault(table, {})[entry] = value
    return {table: _position(values) for table, values in of_table.items() if _TOPIC in values}


def _position(values: Mapping[str, str]) -> Position:
    """The position with these entries."""
    found: dict[str, dict[int, Any]] = {name: {} for name in _FIELDS.values()}
    for entry, value in values.items():
        kind, slash, partition = entry.partition("/")
        if (name := _FIELDS.get(kind + slash)) is not None:
            found[name][int(partition)] = value if name == "event_places" else int(value)
    records, _, at = values.get(_RECORDS, "").partition("/")
    known = int(records) if at == str(sum(found["offsets"].values())) else None
    if known is None:
        found["begins"] = {}
    return Position(values[_TOPIC], joined=int(values.get(_JOINED, "0")), records=known, **found)
