"""The envelopes of Debezium's change events: what a record says of the row with its key.

    op                 after                  record
    c, r, u            the row                the row is this one (an event may come again, `before` may be absent)
    d                                         the row goes
    m                                         nothing: a message, of no table
    t                                         the table stops: which rows of other partitions came before is not known
    (no value)                                nothing: the tombstone after a deletion

Keys and values are JSON, with or without `schema` and `payload`, or Avro, whose events are decoded before they are
opened. Debezium delivers an event at least once: after a restart it begins somewhat earlier, so events come again. An
event is left out where its place in the database's log shows that it came before (`event_places.py`). Any other event
is applied, also where it came before: a row is an older one until the next events are read, and no event is lost. With
`transactions`, repeats of whole transactions do not come here.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.by_key.event_places import EventPlaces, Origin, Place, place_of
from tidemark_replica.storage.kafka.by_key.opened import Opened, decoded_later
from tidemark_replica.storage.kafka.stop import TRUNCATED
from tidemark_replica.storage.kafka.values.debezium_schemas import AFTER, OP, SOURCE
from tidemark_replica.storage.kafka.values.decoded import Decoded, Decoder
from tidemark_replica.storage.kafka.values.json_values import without_data

UNAVAILABLE = "__debezium_unavailable_value"
"""The text in place of a TOASTed value of PostgreSQL that an update did not change. Of an array its only element is the
text, or for uuid[] the UUID of it; an int[] or bigint[] has the text's bytes as numbers."""
_UNAVAILABLE_BYTES = np.frombuffer(UNAVAILABLE.encode(), np.uint8).astype(np.float64)
_UNAVAILABLE_UUID = str(uuid.UUID(bytes=hashlib.md5(UNAVAILABLE.encode()).digest(), version=3))
_UNAVAILABLE_ELEMENTS = (UNAVAILABLE, _UNAVAILABLE_UUID)
_NUMBERS = f"[{','.join(map(str, UNAVAILABLE.encode()))}]"
_UNAVAILABLE_TEXTS = pa.array([UNAVAILABLE, _NUMBERS, *(f'["{each}"]' for each in _UNAVAILABLE_ELEMENTS)])
"""The forms of UNAVAILABLE in a STRING: a text, or an array that is taken as JSON text."""
_NO_EVENT = "no change event: op is none of c, r, u, d, t and m, or after is missing"
_ROWS = pa.array(["c", "r", "u"])
_NULL = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct):
    op: str | None = None
    after: msgspec.Raw = _NULL
    source: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw
    payload: msgspec.Raw


_decode = msgspec.json.Decoder(_Envelope).decode
_decode_origin = msgspec.json.Decoder(Origin).decode
_decode_wrapped = msgspec.json.Decoder(_Wrapped).decode


class JsonEvents:
    """Opens records in JSON, in their order. `decoder`: of rows; `places` move."""

    def __init__(self, decoder: Decoder, places: EventPlaces) -> None:
        self._decoder, self._places = decoder, places

    def __call__(self, records: Sequence[Any]) -> Opened:
        """Raises TableStopped where the table was truncated upstream."""
        values: list[bytes | None] = [None] * len(records)
        bad: dict[int, str] = {}
        ignored = set[int]()
        for i, record in enumerate(records):
            if (value := record.value()) is None:
                ignored.add(i)
                continue
            try:
                event = _decode(value)
                if event.op is None and event.payload != _NULL:
                    event = _decode(event.payload)
            except (msgspec.MsgspecError, RecursionError) as error:
                bad[i] = without_data(error)
                continue
            if event.op == "t":
                raise _truncated(record)
            if event.op == "m" or self._is_repeated(event, record.partition()):
                ignored.add(i)
            elif event.op in ("c", "r", "u") and event.after != _NULL:
                values[i] = bytes(event.after)
            elif event.op != "d":
                bad[i] = _NO_EVENT
        return decoded_later(values, self._decoder, bad, frozenset(ignored))

    def _is_repeated(self, event: _Envelope, partition: int) -> bool:
        """Whether an event of the log was read before. Events of snapshots (r) have the position of the snapshot, which
        is no order."""
        return event.op != "r" and self._places.is_repeated(partition, _place(event.source))


class AvroEvents:
    """Opens records in Avro, in their order. `decoder`: of whole events; `heads`: of OP and SOURCE alone; `columns`:
    the fields of a row that are columns of the table; `places` move.

        value ──decoder──► OP, SOURCE, AFTER
              └─ malformed ──heads──► OP, SOURCE      what came again, or has no row, is so whatever its row is
                         └─ malformed ──► bad
    """

    def __init__(self, decoder: Decoder, heads: Decoder, columns: Sequence[str], places: EventPlaces) -> None:
        self._decoder, self._heads, self._columns, self._places = decoder, heads, columns, places

    def __call__(self, records: Sequence[Any]) -> Opened:
        """Raises TableStopped where the table was truncated upstream, RegistryAway."""
        values = [record.value() for record in records]
        decoded = self._decoder(values)
        good = np.array([i for i in range(len(values)) if i not in decoded.bad], np.int64)
        row_at, has_after = np.full(len(values), -1, np.int64), np.zeros(len(values), np.bool_)
        row_at[good], has_after[good] = np.arange(len(good)), _mask(pc.is_valid(decoded.columns[AFTER]))
        at, op, source, bad = good, decoded.columns[OP], decoded.columns[SOURCE], dict[int, str]()
        if decoded.bad:
            found = self._heads([values[i] for i in decoded.bad])
            bad = {i: why for j, (i, why) in enumerate(decoded.bad.items()) if j in found.bad}
            at = np.concatenate([good, np.array([i for i in decoded.bad if i not in bad], np.int64)])
            order = np.argsort(at)
            op, source = (
                pa.concat_arrays([each, found.columns[i]]).take(pa.array(order))
                for i, each in ((OP, op), (SOURCE, source))
            )
            at = at[order]
        if len(truncated := at[_are(op, "t")]):
            raise _truncated(records[truncated[0]])
        ignored = np.array([values[i] is None for i in at], np.bool_) | _are(op, "m")
        logged = np.flatnonzero(~ignored & ~_are(op, "r"))
        partitions = np.array([records[i].partition() for i in at[logged]], np.int64)
        ignored[logged] = self._places.are_repeated(partitions, source.take(pa.array(logged)))
        has_row = ~ignored & _mask(pc.is_in(op, value_set=_ROWS)) & has_after[at]
        no_row = at[~ignored & ~has_row & ~_are(op, "d")]
        bad |= {int(i): decoded.bad.get(int(i), _NO_EVENT) for i in no_row}
        fields = [pc.struct_field(decoded.columns[AFTER], [name]) for name in self._columns]

        def decode(rows: Sequence[int]) -> Decoded:
            taken = pa.array(row_at[list(rows)])
            return Decoded([field.take(taken) for field in fields], {})

        return Opened(frozenset(map(int, at[has_row])), decode, bad, frozenset(map(int, at[ignored])))


def _truncated(record: Any) -> TableStopped:
    place = f"partition {record.partition()} of topic {record.topic()} at offset {record.offset()}"
    return TableStopped(TRUNCATED, f"the table was truncated upstream: {place}")


def _are(op: pa.Array, given: str) -> np.ndarray:
    return _mask(pc.fill_null(pc.equal(op, given), False))


def _mask(found: pa.Array) -> np.ndarray:
    return found.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _place(source: msgspec.Raw) -> Place | None:
    """The place of an event in JSON, if it has one."""
    try:
        return place_of(_decode_origin(source))
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError):
        return None


def unwrapped_key(key: bytes | None) -> bytes | None:
    """The key without `schema`, where it has one."""
    if key is None or b'"schema"' not in key or b'"payload"' not in key:
        return key
    try:
        return bytes(_decode_wrapped(key).payload)
    except (msgspec.MsgspecError, RecursionError):
        return key


def may_be_unavailable(type: pa.DataType) -> bool:
    if pa.types.is_list(type):
        return may_be_unavailable(type.value_type) or _is_numeric(type.value_type)
    return type in (pa.string(), pa.binary())


def unavailable(column: pa.Array) -> pa.Array:
    """Where the column, which `may_be_unavailable`, has UNAVAILABLE in place of its value; Booleans without NULL."""
    if pa.types.is_list(column.type):
        return pa.array(_unavailable_lists(column))
    return _are_unavailable(column, _UNAVAILABLE_TEXTS)


def _are_unavailable(column: pa.Array, texts: pa.Array) -> pa.Array:
    if column.type not in (pa.string(), pa.binary()):
        return pa.array(np.zeros(len(column), np.bool_))
    return pc.is_in(column, value_set=texts.cast(column.type))  # NULL is in no set


def _unavailable_lists(column: pa.Array) -> np.ndarray:
    found = np.zeros(len(column), np.bool_)
    is_numeric = _is_numeric(column.type.value_type)
    length = len(_UNAVAILABLE_BYTES) if is_numeric else 1
    rows = np.flatnonzero(pc.fill_null(pc.equal(pc.list_value_length(column), length), False))
    elements = pc.list_flatten(column.take(pa.array(rows)))
    if is_numeric:
        numbers = pc.cast(elements, pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # NULL is NaN
        found[rows] = (numbers.reshape(-1, length) == _UNAVAILABLE_BYTES).all(axis=1)
    else:
        found[rows] = _are_unavailable(elements, pa.array(_UNAVAILABLE_ELEMENTS)).to_numpy(zero_copy_only=False)
    return found


def _is_numeric(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))
