"""From records to changes of a table's rows by key, and to updates of one tick.

record:  key ──key decoder──► key columns          envelope upsert: the value is the row; none: the row goes
         value ──envelope──► row, or deletion ──value decoder──► value columns, metadata

         bad key                      an error row that stays, or a dead letter
         bad value of a good key      an error row in place of the key's row, until the key is written again;
                                      or a dead letter, and the key's row stays as it was
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, Shard
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_replica.storage.kafka.decoded import Decoder
from tidemark_replica.storage.kafka.decoding import decoder_of
from tidemark_replica.storage.kafka.keyed_errors import KeyedErrors
from tidemark_replica.storage.kafka.rows import Metadata, columns_of, letters_of, place_of
from tidemark_replica.storage.keyed_rows.changes import GONE
from tidemark_replica.storage.keyed_rows.table import KeyedTable
from tidemark_replica.storage.update_rows import error_rows, stamped
from tidemark_replica.values.arrow_types import arrow_schema


@dataclass(frozen=True)
class Opened:
    """The values of a batch of records, without their envelopes: None where the row is deleted. `bad`: why envelopes
    are malformed, `ignored`: records that change nothing; both by position."""

    values: Sequence[bytes | None]
    bad: Mapping[int, str] = field(default_factory=dict)
    ignored: frozenset[int] = frozenset()


Open = Callable[[Sequence[Any]], Opened]


def open_upsert(records: Sequence[Any]) -> Opened:
    """The value is the row."""
    return Opened([record.value() for record in records])


class KeyedRecords:
    """The rows of a table by key, and their errors; `decoder`: of values. Updates count once they are bound."""

    def __init__(self, table: KafkaTable, decoder: Decoder, shard: Shard) -> None:
        self._table, self._decoder = table, decoder
        self._key_decoder = decoder_of(replace(table, format=table.key_format, columns=table.key_columns, framed=False))
        self._metadata = Metadata(table)
        self._schema = arrow_schema(columns_of(table))
        self.rows = KeyedTable(shard, [column.name for column in table.key_columns])
        self._errors = KeyedErrors(shard)

    def bound(self, upper: int) -> None:
        """A binding names the updates since the last call, if any; the shard's upper will be `upper`."""
        self.rows.bound(upper)
        self._errors.bound(upper)

    def discard(self) -> None:
        """No binding will name the updates since the last call of `bound`."""
        self.rows.discard()
        self._errors.discard()

    def close(self) -> None:
        self.rows.close()

    def made(self, time: Time, open: Open, size: int) -> KeyedUpdates:
        """The maker of the updates of one tick, of about `size` bytes of records."""
        return KeyedUpdates(self, time, open, size)


class KeyedUpdates:
    """Makes the updates of a table at one time. `letters` collects its dead letters, `malformed` counts."""

    def __init__(self, of: KeyedRecords, time: Time, open: Open, size: int) -> None:
        self._of, self._time, self._open, self._size = of, time, open, size
        self._to_letters = of._table.on_bad_record == "deadLetter"
        self.letters: list[pa.RecordBatch] = []
        self.malformed = 0

    def updates(self, batches: Iterable[Sequence[Any]]) -> Iterator[pa.RecordBatch]:
        """The updates of the table. Raises TableStopped where too many records are malformed."""
        of = self._of
        of._errors.refresh()
        changes = (self._changes(records) for records in batches)
        for table in of.rows.updates((some for some in changes if some.num_rows), self._size):
            for batch in table.combine_chunks().to_batches():
                rows = batch.select(of._schema.names).cast(of._schema)
                yield stamped(rows, self._time, diffs=batch.column(DIFF))
        if errors := of._errors.updates():
            texts, diffs = zip(*errors, strict=True)
            yield error_rows(of._schema, self._time, pa.array(texts, pa.string()), pa.array(diffs, pa.int64()))

    def _changes(self, records: Sequence[Any]) -> pa.Table:
        """The changes, in order."""
        of, opened = self._of, self._open(records)
        keys, key_at, bad_keys = self._keys(records, opened)
        keyed = [i for i in range(len(records)) if key_at[i] >= 0]
        given = [i for i in keyed if i not in opened.bad and opened.values[i] is not None]
        bad = {i: opened.bad[i] for i in keyed if i in opened.bad}
        bad |= {i: why for i in given if (why := of._metadata.unfit(records[i])) is not None}
        given = [i for i in given if i not in bad]
        decoded = of._decoder([opened.values[i] for i in given])
        bad |= {given[at]: why for at, why in decoded.bad.items()}
        good = [i for i in given if i not in bad]
        self._count_bad(records, bad_keys, bad)
        rows = [i for i in keyed if not (i in bad and self._to_letters)]
        value_at = np.full(len(records), -1, np.int64)
        value_at[good] = np.arange(len(good))
        at, taken = key_at[rows], value_at[rows]
        key_columns = [key.take(pa.array(at)) for key in keys]
        of._errors.add(key_columns, [place_of(records[i]) if i in bad else None for i in rows])
        values = [*decoded.columns, *of._metadata.arrays([records[i] for i in good])]
        value_columns = [value.take(pa.array(taken, mask=taken < 0)) for value in values]
        arrays = [*key_columns, *value_columns, pa.array(taken < 0)]
        return pa.Table.from_arrays(arrays, schema=of._schema.append(pa.field(GONE, pa.bool_())))

    def _keys(self, records: Sequence[Any], opened: Opened) -> tuple[list[pa.Array], np.ndarray, dict[int, str]]:
        """The columns of good keys, for each record its row there or -1, and why keys are bad."""
        wanted = [i for i in range(len(records)) if i not in opened.ignored]
        decoded = self._of._key_decoder([records[i].key() for i in wanted])
        bad = {wanted[at]: f"key: {why}" for at, why in decoded.bad.items()}
        found = np.array([i for i in wanted if i not in bad], np.int64)
        null = np.zeros(len(found), np.bool_)
        for column in decoded.columns:
            null |= pc.is_null(column).to_numpy(zero_copy_only=False)
        key_at = np.full(len(records), -1, np.int64)
        key_at[found[~null]] = np.flatnonzero(~null)
        bad |= {int(i): "key: a column of it is missing or null" for i in found[null]}
        return decoded.columns, key_at, bad

    def _count_bad(self, records: Sequence[Any], keys: Mapping[int, str], values: Mapping[int, str]) -> None:
        bad = dict(sorted({**keys, **values}.items()))
        self.malformed += len(bad)
        if bad and self._to_letters:
            self.letters.append(letters_of([records[i] for i in bad], list(bad.values()), self._time))
            return
        for i in keys:
            self._of._errors.add_without_key(place_of(records[i]))
