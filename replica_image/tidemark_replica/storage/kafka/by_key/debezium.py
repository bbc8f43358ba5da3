"""The envelopes of Debezium's change events: what a record says of the row with its key.

    op                 after                  record
    c, r, u            the row                the row is this one (an event may come again, `before` may be absent)
    d                                         the row goes
    m                                         nothing: a message, of no table
    t                                         the table stops: which rows of other partitions came before is not known
    (no value)                                nothing: the tombstone after a deletion

Keys and values are JSON, with or without `schema` and `payload`. Debezium delivers an event at least once. After a
restart it begins somewhat earlier, so events of before come again; they are left out where their position in the
database's log tells. `seen`: by partition, the greatest position so far, as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.by_key.opened import Opened
from tidemark_replica.storage.kafka.stop import TRUNCATED

UNAVAILABLE = "__debezium_unavailable_value"
"""What stands for a TOASTed value of PostgreSQL that an update did not change."""
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
    server_id: int = 0
    sequence: str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None


_decode = msgspec.json.Decoder(_Envelope).decode
_decode_origin = msgspec.json.Decoder(_Origin).decode
_decode_wrapped = msgspec.json.Decoder(_Wrapped).decode


class DebeziumEnvelopes:
    """Opens records, in their order. `seen` moves; `repeated` counts events that came again."""

    def __init__(self, seen: Mapping[int, str]) -> None:
        self._seen: dict[int, dict[str, Any]] = {partition: json.loads(place) for partition, place in seen.items()}
        self.repeated = 0

    @property
    def seen(self) -> dict[int, str]:
        return {partition: json.dumps(place, separators=(",", ":")) for partition, place in self._seen.items()}

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
                bad[i] = str(error)[:200] if isinstance(error, msgspec.MsgspecError) else type(error).__name__
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
        """Whether an event of the log was read before; `seen` moves where it was not. Events of snapshots (r) have the
        position of the snapshot, which is no order."""
        if event.op == "r" or (at := position(event.source)) is None:
            return False
        before = self._seen.get(partition)
        if before is not None and at["log"] == before["log"] and at["at"] < before["at"] and at["ms"] <= before["ms"]:
            self.repeated += 1  # a log that was restored has smaller positions, but later times
            return True
        self._seen[partition] = at
        return False


def position(source: msgspec.Raw) -> dict[str, Any] | None:
    """The place of an event in the log of its database: the `log`, the numbers `at` that only grow there, and the
    time `ms`. None where these are not known to grow."""
    try:
        origin = _decode_origin(source)
        if origin.connector == "postgresql" and origin.sequence is not None:
            last_commit, own = json.loads(origin.sequence)
            return {"log": "postgresql", "at": [int(last_commit), int(own)], "ms": origin.ts_ms}
        if origin.connector in ("mysql", "mariadb") and origin.file and origin.pos is not None:
            name, _, number = origin.file.rpartition(".")
            at = [int(number), origin.pos, origin.row or 0]
            return {"log": f"{name} of {origin.server_id}", "at": at, "ms": origin.ts_ms}
    except (msgspec.MsgspecError, ValueError, TypeError):
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
    return type in (pa.string(), pa.binary(), pa.list_(pa.string()))


def unavailable(column: pa.Array) -> pa.Array:
    """Where the column has UNAVAILABLE in place of its value; Booleans without NULL."""
    if pa.types.is_list(column.type):
        found = np.zeros(len(column), np.bool_)
        is_one = pc.fill_null(pc.equal(pc.list_flatten(column), UNAVAILABLE), False)
        found[pc.list_parent_indices(column).filter(is_one).to_numpy()] = True
        return pa.array(found)
    value = UNAVAILABLE.encode() if pa.types.is_binary(column.type) else UNAVAILABLE
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
