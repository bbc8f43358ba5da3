"""The envelopes of Debezium's change events: what a record says of the row with its key.

    op                 after                  record
    c, r, u            the row                the row is this one (an event may come again, `before` may be absent)
    d                                         the row goes
    m                                         nothing: a message, of no table
    t                                         the table stops: which rows of other partitions came before is not known
    (no value)                                nothing: the tombstone after a deletion

Keys and values are JSON, with or without `schema` and `payload`. Debezium delivers an event at least once: after a
restart it begins somewhat earlier, so events come again. An event is left out where its place in the database's log
shows that it came before. Any other event is applied, also where it came before: a row is an older one until the next
events are read, and no event is lost. With `transactions`, repeats of whole transactions do not come here.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.by_key.opened import Opened
from tidemark_replica.storage.kafka.stop import TRUNCATED
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
LOGS_MAX = 16
"""Logs of databases whose places are kept for a partition: those that came last."""
NAMES_LENGTH_MAX = 1_000
"""Characters of the names of a log; places are durable."""
_NULL = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct):
    op: str | None = None
    after: msgspec.Raw = _NULL
    source: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw
    payload: msgspec.Raw


class _Origin(msgspec.Struct):
    connector: str
    ts_ms: int
    name: str = ""
    db: str | None = None
    gtid: str | None = None
    server_id: int = 0
    sequence: str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None


_decode = msgspec.json.Decoder(_Envelope).decode
_decode_origin = msgspec.json.Decoder(_Origin).decode
_decode_sequence = msgspec.json.Decoder(list[str | None]).decode
_decode_wrapped = msgspec.json.Decoder(_Wrapped).decode


class DebeziumEnvelopes:
    """Opens records, in their order. `places`: by partition, the greatest place of an event in each log, as text; they
    move. `repeated` counts events that came again."""

    def __init__(self, places: Mapping[int, str]) -> None:
        self._places = {partition: _places_by_log(json.loads(text)) for partition, text in places.items()}
        self.repeated = 0

    @property
    def places(self) -> dict[int, str]:
        return {p: json.dumps(list(by_log.values()), separators=(",", ":")) for p, by_log in self._places.items()}

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
                place = f"partition {record.partition()} of topic {record.topic()} at offset {record.offset()}"
                raise TableStopped(TRUNCATED, f"the table was truncated upstream: {place}")
            if event.op == "m" or self._is_repeated(event, record.partition()):
                ignored.add(i)
            elif event.op in ("c", "r", "u") and event.after != _NULL:
                values[i] = bytes(event.after)
            elif event.op != "d":
                bad[i] = "no change event: op is none of c, r, u, d, t and m, or after is missing"
        return Opened(values, bad, frozenset(ignored))

    def _is_repeated(self, event: _Envelope, partition: int) -> bool:
        """Whether an event of the log was read before; its place is noted where it was not. Events of snapshots (r)
        have the position of the snapshot, which is no order."""
        if event.op == "r" or (at := position(event.source)) is None:
            return False
        by_log, log = self._places.setdefault(partition, {}), tuple(at["log"])
        before = by_log.get(log)
        if before is not None and at["at"] < before["at"] and at["ms"] <= before["ms"]:
            self.repeated += 1  # a log that was restored has smaller positions, but later times
            return True
        by_log.pop(log, None)
        by_log[log] = at
        while len(by_log) > LOGS_MAX:
            del by_log[next(iter(by_log))]
        return False


def _places_by_log(places: Sequence[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(place["log"]): place for place in places}


def position(source: msgspec.Raw) -> dict[str, Any] | None:
    """The place of an event in the log of its database: the `log` (connector, its name, database, server), the numbers
    `at` that only grow there, and the time `ms`. None where these are not known to grow: with GTIDs a connector of
    MySQL may go on at another server, whose files are others."""
    try:
        origin = _decode_origin(source)
        log = [origin.connector, origin.name, origin.db or ""]
        if sum(map(len, [*log, origin.file or ""])) > NAMES_LENGTH_MAX:
            return None
        if origin.connector == "postgresql" and origin.sequence is not None:
            last_commit, own = _decode_sequence(origin.sequence)  # a connector's first transaction has no commit before
            return {"log": log, "at": [int(last_commit or 0), int(own or "")], "ms": origin.ts_ms}
        if origin.connector in ("mysql", "mariadb") and not origin.gtid and origin.file and origin.pos is not None:
            name, _, number = origin.file.rpartition(".")
            at = [int(number), origin.pos, origin.row or 0]
            return {"log": [*log, name, str(origin.server_id)], "at": at, "ms": origin.ts_ms}
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError):
        return None
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
