"""Changed rows as records: a key, and a value or none.

    upsert       key ─► the new row                       a row that goes: key ─► no value (a tombstone)
    debezium     key ─► {before, after, op, ts_ms}        a row that goes: an event with op d, then a tombstone

A row that changes is one record. `record_formats.py` makes bytes of keys and rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.kafka.json_text import TEXT
from tidemark_replica.sinks.kafka.record_formats import JsonFormat, RecordFormat

UPSERT, DEBEZIUM = "upsert", "debezium"
_JSON = JsonFormat()


@dataclass(frozen=True)
class EnvelopeRecords:
    """Keys, and the values beside them; NULL is no value. large_string, or large_binary."""

    keys: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.keys)

    def pairs(self, at_a_time: int = 10_000) -> Iterator[tuple[bytes, bytes | None]]:
        """Each key and value as bytes."""
        keys, values = (column.cast(pa.large_binary()) for column in (self.keys, self.values))
        for begin in range(0, len(keys), at_a_time):
            part = slice(begin, begin + at_a_time)
            yield from zip(keys[part].to_pylist(), values[part].to_pylist(), strict=True)


@dataclass(frozen=True)
class Envelope:
    """The form in which rows become records. `kind`: UPSERT or DEBEZIUM. `key`: names of columns."""

    kind: str
    key: Sequence[str]
    format: RecordFormat = _JSON

    def keys(self, rows: pa.Table) -> pa.Array:
        """The key of each row, as its bytes. Raises DestinationStopped."""
        return self.format.keys(self.key, [_array(rows, name) for name in self.key])

    def records(self, changes: pa.Table, time: Time, *, snapshot: bool = False) -> EnvelopeRecords:
        """The records of one time. `changes`: the net changes of the time, with `__diff` 1 or -1; each key has one of
        each at most."""
        is_new = pc.greater(changes.column(DIFF), 0)
        old, new = changes.filter(pc.invert(is_new)), changes.filter(is_new)
        old_keys, new_keys = self.keys(old), self.keys(new)
        goes = pc.invert(pc.is_in(old_keys, value_set=new_keys))
        gone = old_keys.filter(goes)
        tombstones = pa.nulls(len(gone), self.format.type)
        rows = self._rows(new)
        if self.kind == UPSERT:
            values = self.format.values(rows)
            return EnvelopeRecords(pa.concat_arrays([new_keys, gone]), pa.concat_arrays([values, tombstones]))
        before = self._rows(old)
        met = before.take(pc.index_in(new_keys, value_set=old_keys))
        created = pa.scalar("r" if snapshot else "c", TEXT)
        changed = self.format.events(met, rows, pc.if_else(met.is_valid(), pa.scalar("u", TEXT), created), time)
        lost = before.filter(goes)
        deleted = self.format.events(lost, tombstones, pa.repeat(pa.scalar("d", TEXT), len(lost)), time)
        keys = pa.concat_arrays([new_keys, gone, gone])
        return EnvelopeRecords(keys, pa.concat_arrays([changed, deleted, tombstones]))

    def _rows(self, rows: pa.Table) -> pa.Array:
        names = [name for name in rows.column_names if name != DIFF]
        return self.format.rows(names, [_array(rows, name) for name in names])


def _array(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name).combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
