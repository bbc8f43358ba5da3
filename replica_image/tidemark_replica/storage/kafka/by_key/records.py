"""The way from records to changes of a table's rows by key, and to updates of one tick.

record:  key ──key decoder──► key columns
         value ──envelope (opened.py, debezium.py)──► row, or deletion ──decoded──► value columns, metadata

         bad key                      an error row that stays, or a dead letter
         bad value of a good key      an error row in place of the key's row, until the key is written again;
                                      or a dead letter, and the key's row stays as it was
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, Shard
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_replica.storage.kafka.by_key.debezium import may_be_unavailable, unavailable, unwrapped_key
from tidemark_replica.storage.kafka.by_key.errors import KeyedErrors
from tidemark_replica.storage.kafka.by_key.opened import Open, Opened
from tidemark_replica.storage.kafka.rows import Metadata, letters_at, letters_of, place_of
from tidemark_replica.storage.kafka.values.decoded import Decoder
from tidemark_replica.storage.kafka.values.decoding import key_columns
from tidemark_replica.storage.keyed_rows.changes import GONE, KEPT
from tidemark_replica.storage.keyed_rows.table import KeyedTable
from tidemark_replica.storage.update_rows import error_rows, stamped

_PLACE = "__place"


class KeyedRecords:
    """The rows of a table by key, and their errors. `schema`: of the table's `columns_of`, `key_decoder`: of its keys.
    Updates count once a binding names them."""

    def __init__(self, table: KafkaTable, schema: pa.Schema, key_decoder: Decoder, shard: Shard) -> None:
        self._table, self._schema, self._key_decoder = table, schema, key_decoder
        self._key_names = [column.name for column in key_columns(table)]
        is_wrapped = table.envelope == "debezium" and table.key_format == "json"
        self._key_of = unwrapped_key if is_wrapped else bytes_of
        self._metadata = Metadata(table)
        values = schema.names[len(self._key_names) : len(schema) - len(table.metadata)]
        self._may_be_kept = [
            name for name in values if table.envelope == "debezium" and may_be_unavailable(schema.field(name).type)
        ]
        kept = [pa.field(KEPT + name, pa.bool_()) for name in self._may_be_kept]
        self._changes_schema = pa.schema([*schema, (GONE, pa.bool_()), (_PLACE, pa.string()), *kept])
        self.rows = KeyedTable(shard, self._key_names)
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
        for table in of.rows.updates(self._all_changes(batches), self._size, self._without_row):
            for batch in table.combine_chunks().to_batches():
                rows = batch.select(of._schema.names).cast(of._schema)
                yield stamped(rows, self._time, diffs=batch.column(DIFF))
        if errors := of._errors.updates():
            texts, diffs = zip(*errors, strict=True)
            yield error_rows(of._schema, self._time, pa.array(texts, pa.string()), pa.array(diffs, pa.int64()))

    def _all_changes(self, batches: Iterable[Sequence[Any]]) -> Iterator[pa.Table]:
        """The changes of all batches, in order. A tick without records asks the shard for nothing."""
        for at, records in enumerate(batches):
            if at == 0:
                self._of._errors.refresh()
            if (changes := self._changes(records)).num_rows:
                yield changes

    def _changes(self, records: Sequence[Any]) -> pa.Table:
        """The changes, in order."""
        of, opened = self._of, self._open(records)
        keys, key_at, bad_keys = self._keys(records, opened)
        keyed = [i for i in range(len(records)) if key_at[i] >= 0]
        given = [i for i in keyed if i not in opened.bad and i in opened.rows]
        bad = {i: opened.bad[i] for i in keyed if i in opened.bad}
        bad |= {i: why for i in given if (why := of._metadata.unfit(records[i])) is not None}
        given = [i for i in given if i not in bad]
        decoded = opened.decode(given)
        bad |= {given[at]: why for at, why in decoded.bad.items()}
        good = [i for i in given if i not in bad]
        self._count_bad(records, bad_keys, bad)
        rows = [i for i in keyed if not (i in bad and self._to_letters)]
        value_at = np.full(len(records), -1, np.int64)
        value_at[good] = np.arange(len(good))
        at, taken = key_at[rows], value_at[rows]
        taken_keys = [key.take(pa.array(at)) for key in keys]
        places = [place_of(records[i]) if i in bad else None for i in rows]
        of._errors.add(taken_keys, places)
        values = [*decoded.columns, *of._metadata.arrays([records[i] for i in good])]
        value_columns = [value.take(pa.array(taken, mask=taken < 0)) for value in values]
        table = pa.Table.from_arrays([*taken_keys, *value_columns], schema=of._schema)
        kept = [unavailable(table.column(name).combine_chunks()) for name in of._may_be_kept]
        where = [place_of(records[i]) for i in rows] if any(pc.any(k).as_py() for k in kept) else None
        place = pa.nulls(len(rows), pa.string()) if where is None else pa.array(where, pa.string())
        arrays = [*table.columns, pa.array(taken < 0), place, *kept]
        return pa.Table.from_arrays(arrays, schema=of._changes_schema)

    def _without_row(self, changes: pa.Table) -> None:
        """Changes that leave a column as it was in a row that is not there: they are malformed."""
        self.malformed += changes.num_rows
        places = changes.column(_PLACE).to_pylist()
        if self._to_letters:
            self.letters.append(letters_at(places, "a value is as before in a row that is not there", self._time))
        else:
            keys = [changes.column(name) for name in self._of._key_names]
            self._of._errors.add(keys, places)

    def _keys(self, records: Sequence[Any], opened: Opened) -> tuple[list[pa.Array], np.ndarray, dict[int, str]]:
        """The columns of good keys, for each record its row there or -1, and why keys are bad."""
        wanted = [i for i in range(len(records)) if i not in opened.ignored]
        decoded = self._of._key_decoder([self._of._key_of(records[i].key()) for i in wanted])
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


def bytes_of(key: bytes | None) -> bytes | None:
    """The key as it is."""
    return key
