"""Metadata of transactions from Debezium's connector of PostgreSQL (`provide.transaction.metadata`), in JSON with or
without schemas; in Avro: `avro_metadata.py`.

    topic of transactions   {"status": "BEGIN", "id": "728:26391608", ...}
                            {"status": "END", "id": "728:26392432", "event_count": 6, "ts_ms": 1795755236270,
                             "data_collections": [{"data_collection": "public.items", "event_count": 2}, ...]}
    change event            {"op": "c", ..., "transaction": {"id": "728:26392008", "total_order": 5,
                                                              "data_collection_order": 3},
                             "source": {..., "sequence": "[\\"26391500\\",\\"26392008\\"]"}}

The number before the colon is the transaction; the one after it is a position in the log of the database. The position
of END is that of the commit, so positions of END grow from transaction to transaction. The first number of `sequence`
is the position of the commit before the event's transaction; the first transaction of a connector has none there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

import msgspec

_ID = re.compile(r"([0-9]{1,20}):([0-9]{1,20})")
_NO_TOPIC = re.compile(r"[^a-zA-Z0-9._-]")
POSTGRESQL = "postgresql"
_NULL = msgspec.Raw(b"null")
Found = TypeVar("Found")


class _Block(msgspec.Struct):
    id: str
    data_collection_order: int


class _Origin(msgspec.Struct):
    connector: str = ""
    schema: str | None = None
    table: str | None = None
    sequence: str | None = None


class _Wrapped(msgspec.Struct):
    payload: msgspec.Raw = _NULL


class _Change(msgspec.Struct):
    op: str | None = None
    transaction: _Block | None = None
    source: _Origin | None = None


class _Count(TypedDict):
    data_collection: str
    event_count: int


class _Boundary(msgspec.Struct):
    status: str | None = None
    id: str | None = None
    ts_ms: int | None = None
    data_collections: list[_Count] | None = None


_decode_wrapped = msgspec.json.Decoder(_Wrapped).decode
_decode_change = msgspec.json.Decoder(_Change).decode
_decode_boundary = msgspec.json.Decoder(_Boundary).decode
_decode_sequence = msgspec.json.Decoder(list[str | None]).decode


class NotUnderstood(ValueError):
    """A record is none of PostgreSQL's connector with transaction metadata. The message says why."""


class NoSequence(NotUnderstood):
    """An event does not say which commit came before it, so the source does not know whether the event comes again."""


@dataclass(frozen=True)
class TransactionMark:
    """A change event's metadata of its transaction. `id` empty: it has none. `position`: of the event in the log.
    `order`: the event's number among those of its table. `commit_before`: the position of the commit before the
    transaction, None where it is not known. `table`: as the counts of END name it."""

    id: str
    position: int
    order: int
    commit_before: int | None
    table: str


@dataclass(frozen=True)
class Boundary:
    """The begin of a transaction, or its end with the numbers of events by table. `counts` None: the begin. `position`:
    in the log, `ms`: of the commit."""

    id: str
    position: int
    ms: int
    counts: Mapping[str, int] | None


def mark_of(value: bytes | None) -> TransactionMark | None:
    """The mark of a record of a table; None where it is no change event: an event of a snapshot, a message, a record
    without a value, or one that is malformed. Raises NotUnderstood, of an event without a sequence NoSequence."""
    if value is None:
        return None
    try:
        event = _decode_change(_payload(value))
    except (msgspec.MsgspecError, RecursionError):
        return None
    of, block = event.source or _Origin(), event.transaction
    id, order = (block.id, block.data_collection_order) if block is not None else (None, None)
    return mark_from(event.op, of.connector, of.schema, of.table, of.sequence, id, order)


def mark_from(
    op: str | None,
    connector: str | None,
    schema: str | None,
    table: str | None,
    sequence: str | None,
    id: str | None,
    order: int | None,
) -> TransactionMark | None:
    """The mark of an event with these fields, as `mark_of`. `id`, `order`: of the block of its transaction, None
    without one."""
    if op not in ("c", "u", "d", "t"):
        return None
    if connector != POSTGRESQL:
        raise NotUnderstood(f"the event is of connector {(connector or '')[:100]!r}, and not of {POSTGRESQL}")
    name, before = f"{schema}.{table}", _commit_before(sequence)
    if id is None or order is None:
        return TransactionMark("", 0, 0, before, name)
    number, position = _split(id)
    return TransactionMark(number, position, order, before, name)


MarksOf = Callable[[Sequence[bytes | None]], Sequence[TransactionMark | NotUnderstood | None]]
"""The marks of a batch of records of a table, as `mark_of`, or why one is not understood. Raises RegistryAway."""


def understood(make: Callable[..., Found], *given: Any) -> Found | NotUnderstood:
    """The result, or why there is none."""
    try:
        return make(*given)
    except NotUnderstood as why:
        return why


def json_marks(values: Sequence[bytes | None]) -> list[TransactionMark | NotUnderstood | None]:
    """The marks of events in JSON."""
    return [understood(mark_of, value) for value in values]


def boundary_of(value: bytes | None) -> Boundary | None:
    """The boundary in a record of the topic of transactions; None where it has no value. Raises NotUnderstood."""
    if value is None:
        return None
    try:
        event = _decode_boundary(_payload(value))
    except (msgspec.MsgspecError, RecursionError):
        raise NotUnderstood("it is no BEGIN or END in JSON") from None
    return boundary_from(event.status, event.id, event.ts_ms, event.data_collections)


def boundary_from(
    status: str | None, id: str | None, ms: int | None, counts: Sequence[Mapping[str, Any]] | None
) -> Boundary:
    """The boundary with these fields, of which `counts` are those of END. Raises NotUnderstood."""
    if id is None or status not in ("BEGIN", "END"):
        raise NotUnderstood("it is no BEGIN or END")
    number, position = _split(id)
    if status == "BEGIN":
        return Boundary(number, position, ms or 0, None)
    total: dict[str, int] = {}
    for each in counts or ():
        name, count = each["data_collection"], each["event_count"]
        if name is None or count is None:
            raise NotUnderstood("its counts lack a table or a number")
        total[name] = total.get(name, 0) + count
    return Boundary(number, position, ms or 0, total)


def prefix_of(topic: str) -> str:
    """The prefix of the names of a connector's topics; `topic`: that of its transactions."""
    return topic.rpartition(".")[0] + "."


def is_of(table: str, topic: str, prefix: str) -> bool:
    """Whether the topic has the events of the table, which is named as END does."""
    return prefix + _NO_TOPIC.sub("_", table) == topic


def _payload(value: bytes) -> bytes | msgspec.Raw:
    """The payload of the value, without a schema around it. Raises MsgspecError, RecursionError."""
    if b'"payload"' not in value:
        return value
    payload = _decode_wrapped(value).payload
    return value if payload == _NULL else payload


def _split(id: str) -> tuple[str, int]:
    if (found := _ID.fullmatch(id)) is None:
        raise NotUnderstood(f"the id of its transaction is {id[:100]!r}, and none of PostgreSQL's")
    return found[1], int(found[2])


def _commit_before(sequence: str | None) -> int | None:
    """The first number of the sequence; None in a connector's first transaction."""
    try:
        before, own = _decode_sequence(sequence or "")
        int(own or "")
        return None if before is None else int(before)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        found = "none" if sequence is None else repr(sequence[:100])
        raise NoSequence(
            f"source.sequence of the event is {found}, and not the two positions in the log that the connector writes:"
            " the source does not know whether the event comes again"
        ) from None
