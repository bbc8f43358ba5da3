"""The way from records to updates of a table, and of its dead letters.

records ──decoder──► good: columns of the value, metadata ──► rows of the table
                └──► bad: error rows of the table         (onBadRecord: error)
                          rows of `<table>_dead_letter`   (deadLetter)
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import methodcaller
from typing import Any

import pyarrow as pa

from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import MALFORMED_RECORD
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import STRING, Column, SqlType
from tidemark_replica.storage.kafka.values.decoded import Decoded, Decoder
from tidemark_replica.storage.kafka.values.decoding import key_columns, plain_array, value_columns
from tidemark_replica.storage.update_rows import error_rows, stamped
from tidemark_replica.values.arrow_types import arrow_schema
from tidemark_replica.values.calendar import FIRST_US, LAST_US
from tidemark_replica.values.error_text import error_text

BINARY, INT, BIGINT, TIMESTAMP = (SqlType(name) for name in ("binary", "int", "bigint", "timestamp"))
HEADERS = SqlType.array(SqlType.struct([("key", STRING), ("value", BINARY)]))
METADATA = {
    "key": BINARY,
    "keyText": STRING,
    "partition": INT,
    "offset": BIGINT,
    "timestamp": TIMESTAMP,
    "headers": HEADERS,
}
"""The types of metadata columns."""
DEAD_LETTER_COLUMNS = (
    Column("partition", INT, nullable=False),
    Column("offset", BIGINT, nullable=False),
    Column("timestamp", TIMESTAMP),
    Column("key", BINARY),
    Column("value", BINARY),
    Column("reason", STRING),
)
REASON_LENGTH_MAX = 500
"""Characters of a dead letter's reason, before escapes."""
_MS_MIN, _MS_MAX = FIRST_US // 1000, LAST_US // 1000
"""The first and the last millisecond that a TIMESTAMP has: years 1 to 9999."""
_ASK_HEADERS = methodcaller("headers")
_LETTER_SCHEMA = arrow_schema(DEAD_LETTER_COLUMNS)


def columns_of(table: KafkaTable) -> tuple[Column, ...]:
    """The columns of the table: those of the key where rows have one, of the value, then metadata."""
    metadata = [Column(option.name, METADATA[option.value]) for option in table.metadata]
    return (*key_columns(table), *value_columns(table), *metadata)


class Metadata:
    """The metadata columns of a table."""

    def __init__(self, table: KafkaTable) -> None:
        self._options = [option.value for option in table.metadata]
        self.checks = [_CHECKS[option] for option in self._options if option in _CHECKS]

    def unfit(self, record: Any) -> str | None:
        """The reason why the record's metadata cannot be values of the table; None where they can."""
        return next((why for check in self.checks if (why := check(record)) is not None), None)

    def arrays(self, records: Sequence[Any]) -> list[pa.Array]:
        """The columns of records that are not unfit."""
        return [_METADATA_ARRAYS[option](records) for option in self._options]


class RowMaker:
    """Makes the updates of a table at one time. `schema`: of its `columns_of`, `decoder`: of its values. `letters`
    collects its dead letters, `malformed` counts."""

    def __init__(self, table: KafkaTable, schema: pa.Schema, decoder: Decoder, time: Time) -> None:
        self._table, self._schema, self._decoder, self._time = table, schema, decoder, time
        self._metadata = Metadata(table)
        self.letters: list[pa.RecordBatch] = []
        self.malformed = 0

    def updates(self, batches: Iterable[Sequence[Any]]) -> Iterator[pa.RecordBatch]:
        """The rows of the table."""
        for records in batches:
            good, decoded = self._decoded(records)
            arrays = [*decoded.columns, *self._metadata.arrays(good)]
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            yield stamped(rows, self._time)
            if decoded.bad:
                self.malformed += len(decoded.bad)
                bad = [records[i] for i in decoded.bad]
                if self._table.on_bad_record == "deadLetter":
                    self.letters.append(letters_of(bad, list(decoded.bad.values()), self._time))
                else:
                    texts = [error_text(MALFORMED_RECORD, place_of(record)) for record in bad]
                    yield error_rows(self._schema, self._time, pa.array(texts, pa.string()))

    def _decoded(self, records: Sequence[Any]) -> tuple[Sequence[Any], Decoded]:
        """The good records and their columns."""
        decoded = self._decoder([record.value() for record in records])
        if self._metadata.checks:
            found = {i: self._metadata.unfit(record) for i, record in enumerate(records) if i not in decoded.bad}
            if new := {i: why for i, why in found.items() if why is not None}:
                bad = dict(sorted((decoded.bad | new).items()))
                good = [record for i, record in enumerate(records) if i not in bad]
                return good, Decoded(self._decoder([record.value() for record in good]).columns, bad)
        if not decoded.bad:
            return records, decoded
        return [record for i, record in enumerate(records) if i not in decoded.bad], decoded


def place_of(record: Any) -> str:
    """Where the record is."""
    return f"{record.topic()}/{record.partition()}@{record.offset()}"


def letters_of(bad: Sequence[Any], reasons: Sequence[str], time: Time) -> pa.RecordBatch:
    """The dead letters of bad records."""
    arrays = [
        *(_METADATA_ARRAYS[name](bad) for name in ("partition", "offset", "timestamp", "key")),
        pa.array([record.value() for record in bad], pa.binary()),
        pa.array([_reason_text(reason) for reason in reasons], pa.string()),
    ]
    return stamped(pa.RecordBatch.from_arrays(arrays, schema=_LETTER_SCHEMA), time)


def _reason_text(reason: str) -> str:
    """The reason as a text of a table: of bounded length, with escapes for what is no Unicode."""
    return reason[:REASON_LENGTH_MAX].encode(errors="backslashreplace").decode()


def letters_at(places: Sequence[str], reason: str, time: Time) -> pa.RecordBatch:
    """Dead letters of records that are not at hand any more; `places`: as `place_of` gives them."""
    at = [place.rpartition("/")[2].split("@") for place in places]
    known = [
        pa.array([int(partition) for partition, _ in at], pa.int32()),
        pa.array([int(offset) for _, offset in at], pa.int64()),
    ]
    unknown = [pa.nulls(len(at), field.type) for field in list(_LETTER_SCHEMA)[2:5]]
    arrays = [*known, *unknown, pa.repeat(pa.scalar(reason), len(at))]
    return stamped(pa.RecordBatch.from_arrays(arrays, schema=_LETTER_SCHEMA), time)


def _key_unfit(record: Any) -> str | None:
    try:
        if (key := record.key()) is not None:
            key.decode()
    except UnicodeDecodeError:
        return "the key is not UTF-8"
    return None


def _timestamp_unfit(record: Any) -> str | None:
    kind, ms = record.timestamp()
    return None if kind == 0 or _MS_MIN <= ms <= _MS_MAX else "the timestamp is not in the years 1 to 9999"


def _headers_unfit(record: Any) -> str | None:
    """The client returns with an exception set; `methodcaller` checks that at once, the interpreter's own call does not
    always. Asked again, as by a second table that takes the record, it gives pairs with empty places, and the process
    dies where one is touched; the garbage collector passes over them."""
    why = "the key of a header is not UTF-8"
    try:
        headers = _ASK_HEADERS(record)
    except (SystemError, UnicodeDecodeError):
        return why
    return why if headers and len(gc.get_referents(*headers)) < 2 * len(headers) else None


def _timestamps(records: Sequence[Any]) -> pa.Array:
    """The records' timestamps; NULL where a record has none (-1), or one that a dead letter cannot show."""
    given = [record.timestamp() for record in records]
    values = [None if kind == 0 or ms == -1 or not _MS_MIN <= ms <= _MS_MAX else ms for kind, ms in given]
    return pa.array(values, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _headers(records: Sequence[Any]) -> pa.Array:
    values = [
        [{"key": name, "value": value} for name, value in headers]
        if (headers := record.headers()) is not None
        else None
        for record in records
    ]
    return pa.array(values, arrow_schema([Column("h", HEADERS)]).field(0).type)


_METADATA_ARRAYS: dict[str, Callable[[Sequence[Any]], pa.Array]] = {
    "key": lambda records: pa.array([record.key() for record in records], pa.binary()),
    "keyText": lambda records: plain_array([record.key() for record in records], pa.string()),
    "partition": lambda records: pa.array([record.partition() for record in records], pa.int32()),
    "offset": lambda records: pa.array([record.offset() for record in records], pa.int64()),
    "timestamp": _timestamps,
    "headers": _headers,
}
_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "keyText": _key_unfit,
    "timestamp": _timestamp_unfit,
    "headers": _headers_unfit,
}
"""The checks of metadata that not every record has as a value: each returns why it cannot be one, or None."""
