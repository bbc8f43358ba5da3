"""Change events of Debezium in Avro: the same log written in JSON and in Avro gives the same rows after each tick.
Events are those of a log that the tests keep; fastavro writes them, with the schemas that converters register."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.avro.samples import written
from tests.kafka.broker import Broker
from tests.kafka.debezium.avro_events import DATE, MICROS, ZONED, amount, envelope, event_of, nullable, record
from tests.kafka.topics import Run, new_topic, no_secret, produce, spec_of
from tests.schema_registry.registry import Registry, framed, registry
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, Column, SqlType
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.by_key.debezium import UNAVAILABLE
from tidemark_replica.storage.kafka.inspect import tables_of

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
KEY = record("Key", {"name": "id", "type": "long"}, namespace="shop.public.t")
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
ARRAY = {"type": "array", "items": ["null", "string"]}
FIELDS = (
    {"name": "id", "type": "long"},
    nullable("string", "name"),
    nullable("string", "note"),
    nullable(ARRAY, "tags"),
    nullable(DATE, "day"),
    nullable(MICROS, "ts"),
    nullable(ZONED, "at"),
    nullable(amount(), "amount"),
    nullable("bytes", "raw"),
    nullable("double", "v"),
)
COLUMNS = tuple(
    Column(name, SqlType.parse(type))
    for name, type in (
        *(("name", "STRING"), ("note", "STRING"), ("tags", "ARRAY<STRING>"), ("day", "DATE")),
        *(("ts", "TIMESTAMP_NTZ"), ("at", "TIMESTAMP"), ("amount", "DECIMAL(12,2)"), ("raw", "BINARY")),
        ("v", "DOUBLE"),
    )
)
FIRST = envelope(*FIELDS)
MORE = envelope(*FIELDS[:5], {"name": "more", "type": "int"}, *FIELDS[5:])
"""The schema that a connector writes once the table upstream has another column."""
EPOCH = datetime(1970, 1, 1)
Values = dict[str, Any]
"""A row, with values of Python."""


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry() as one:
        yield one


def avro(topic: str, name: str = "a", **options: Any) -> KafkaTable:
    given: dict[str, Any] = {"schema": KafkaSchema(subject="value", version=1), "framed": True}
    given |= {"key_schema": KafkaSchema(subject="key"), "key_framed": True, "key_format": "avro"}
    return KafkaTable(name, topic, "avro", (), envelope="debezium", **(given | options))


def as_json(topic: str, name: str = "j") -> KafkaTable:
    key = (Column("id", BIGINT),)
    return KafkaTable(name, topic, "json", COLUMNS, envelope="debezium", key_format="json", key_columns=key)


def pinned(spec: KafkaSource) -> KafkaSource:
    """With the schemas that an inspection finds, as the operator stores them."""
    found = {table.name: table for table in tables_of(spec, no_secret)}

    def with_texts(table: KafkaTable) -> KafkaTable:
        if table.schema is None or table.key_schema is None:
            return table
        texts = found[table.name]
        schema, key = replace(table.schema, text=texts.schema), replace(table.key_schema, text=texts.key_schema)
        return replace(table, schema=schema, key_schema=key)

    return replace(spec, tables=tuple(map(with_texts, spec.tables)))


def event(op: str, after: Any, at: int, **source: Any) -> Values:
    """An event of PostgreSQL's connector at this place of the log."""
    origin = {"connector": "postgresql", "name": "shop", "db": "d", "ts_ms": 1_000 + at}
    origin["sequence"] = json.dumps([str(at - 1), str(at)])
    return {"before": None, "after": after, "source": origin | source, "op": op, "ts_ms": 5_000 + at}


def json_row(row: Values) -> Values:
    """A row as Debezium's JSON has it, with the settings that the guide advises."""
    found = dict(row)
    for name, how in (("day", lambda v: f"{v}Z"), ("ts", zoned), ("at", zoned), ("amount", str), ("raw", base64_of)):
        found[name] = None if row[name] is None else how(row[name])
    return found


def avro_row(row: Values) -> Values:
    """A row as Debezium's Avro has it, with its default settings."""
    found = dict(row)
    for name, how in (("day", days), ("ts", micros), ("at", zoned), ("amount", unscaled)):
        found[name] = None if row[name] is None else how(row[name])
    return found | {"more": 7}


def zoned(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat() + "Z"


def base64_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


def days(value: date) -> int:
    return (value - EPOCH.date()).days


def micros(value: datetime) -> int:
    return (value - EPOCH) // timedelta(microseconds=1)


def unscaled(value: Decimal) -> bytes:
    number = int(value * 100)
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def random_row(draw: random.Random, id: int, name: str) -> Values:
    time = EPOCH + timedelta(microseconds=draw.randrange(-(10**15), 10**15))
    given = {
        "note": "n" * draw.randrange(5),
        "tags": draw.choice([[], ["x", None]]),
        "day": time.date(),
        "ts": time,
        "at": time.replace(tzinfo=UTC),
        "amount": Decimal(draw.randrange(-(10**6), 10**6)) / 100,
        "raw": draw.randbytes(3),
        "v": draw.choice([0.5, -1e300, 0.0]),
    }
    return {"id": id, "name": name} | {n: None if draw.random() < 0.3 else value for n, value in given.items()}


class Log:
    """A table upstream, and its log: by place the key, the row or None, and the columns that it keeps."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.rows: dict[int, Values] = {}
        self.changes: list[tuple[int, Values | None, tuple[str, ...]]] = []

    def write(self) -> None:
        draw, id = self._draw, self._draw.randrange(10)
        if id in self.rows and draw.random() < 0.3:
            del self.rows[id]
            self.changes.append((id, None, ()))
            return
        new, before, kept = random_row(draw, id, str(len(self.changes))), self.rows.get(id), ()
        if before is not None:
            kept = tuple(name for name in ("note", "tags", "raw") if before[name] and draw.random() < 0.4)
            new |= {name: before[name] for name in kept}
        self.rows[id] = new
        self.changes.append((id, new, kept))

    def event(self, at: int, form: Any) -> tuple[int, Values]:
        """The event at a place, of which `form` makes the row."""
        id, row, kept = self.changes[at]
        if row is None:
            return id, event("d", None, at + 1)
        text = base64_of(UNAVAILABLE.encode()) if form is json_row else UNAVAILABLE.encode()
        stands_for = {"note": UNAVAILABLE, "tags": [UNAVAILABLE], "raw": text}
        return id, event("u", form(row) | {name: stands_for[name] for name in kept}, at + 1)

    def until(self, last: dict[int, int]) -> list[Any]:
        """The rows after the changes up to the last place of each of two partitions."""
        rows: dict[int, Values] = {}
        for at, (id, row, _) in enumerate(self.changes):
            if at > last[id % 2]:
                continue
            rows.pop(id, None)
            if row is not None:
                rows[id] = row
        return sorted((tuple(row.values()) for row in rows.values()), key=repr)


class Written:
    """The topic of a format. `places`: by partition, of each record the place of the log, -1 of a tombstone."""

    def __init__(self, kafka: Broker, server: Registry | None) -> None:
        self._kafka, self.topic, self.places = kafka, new_topic(kafka, 2), ([], [])
        self._schema = FIRST
        if server is not None:
            self._key, self._value = server.register("key", KEY), server.register("value", FIRST)
        self._server = server

    def evolve(self) -> None:
        assert self._server is not None
        self._schema, self._value = MORE, self._server.register("value", MORE)

    def write(self, log: Log, at: int) -> None:
        id, found = log.event(at, json_row if self._server is None else avro_row)
        places: list[int] = self.places[id % 2]
        for value in (found, None) if found["op"] == "d" else (found,):
            produce(self._kafka, self.topic, self._form(value), partition=id % 2, key=self._key_of(id))
            places.append(at if value is not None else -1)

    def _form(self, value: Values | None) -> Any:
        return value if self._server is None else event_of(self._value, self._schema, value)

    def _key_of(self, id: int) -> bytes:
        return json.dumps({"id": id}).encode() if self._server is None else framed(self._key, written(KEY, {"id": id}))

    def last(self, bound: dict[int, int]) -> dict[int, int]:
        return {p: max(self.places[p][: bound.get(p, 0)], default=-1) for p in (0, 1)}


@pytest.mark.parametrize("seed", range(3))
def test_oracle_json_and_avro_of_one_log(kafka: Broker, server: Registry, tmp_path: Path, seed: int) -> None:
    """Inserts, updates (some keep a value), deletions; another column comes upstream; the connector dies and repeats;
    the ingester dies, too. After each tick both tables are what the events up to the last bound one leave."""
    draw = random.Random(seed)
    log, topics = Log(draw), {"j": Written(kafka, None), "a": Written(kafka, server)}
    limit = draw.choice([2_000, 1 << 20])
    spec = pinned(
        spec_of(
            kafka,
            as_json(topics["j"].topic),
            avro(topics["a"].topic),
            registry=server.url,
            max_bytes_per_tick=limit,
        )
    )
    run, sent = Run(tmp_path, spec), 0
    for number in range(12):
        for _ in range(draw.randrange(1, 20)):
            log.write()
        if draw.random() < 0.4:
            sent = draw.randrange(sent + 1)
        if number == 6:
            topics["a"].evolve()
        for at in range(sent, len(log.changes)):
            for topic in topics.values():
                topic.write(log, at)
        sent = len(log.changes)
        for _ in range(draw.randrange(3)):
            run.tick()
            check(run, log, topics)
        if draw.random() < 0.3:
            run.close()
            run = Run(tmp_path, spec)
    run.catch_up()
    check(run, log, topics)
    assert oks(tmp_path, "a") == oks(tmp_path, "j") == log.until({0: sent, 1: sent})
    run.close()


def check(run: Run, log: Log, topics: dict[str, Written]) -> None:
    for name, topic in topics.items():
        if name in run.source._bound:
            assert oks(run.root, name) == log.until(topic.last(run.source._bound[name].offsets))
            assert not errors(run.root, name)


def test_what_is_no_change_is_malformed(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    """Each record by itself, also where its writer's schema is no envelope."""
    topic, row = new_topic(kafka), random_row(random.Random(1), 1, "a") | {"amount": Decimal("1.25")}
    key, value = server.register("key", KEY), server.register("value", FIRST)
    flat = record("Value", *FIELDS, namespace="shop.public.t")
    wider = envelope(*FIELDS[:7], nullable(amount(14), "amount"), *FIELDS[8:])
    unwrapped, unfit = server.register("value", flat), server.register("value", wider)
    good = event_of(value, FIRST, event("c", avro_row(row), 9))
    assert good is not None
    dated = avro_row(row) | {"day": 10**7}
    bad = {
        "no change event": event_of(value, FIRST, event("x", avro_row(row), 1)),
        "or after is missing": event_of(value, FIRST, event("c", None, 2)),
        "has no field op": framed(unwrapped, written(flat, avro_row(row))),
        "a branch of a union that the reader's": event_of(unfit, wider, event("c", avro_row(row), 3)),
        "ends within a value": good[:-9],
        "no frame of a registry": b"\x01" + good[1:],
        "the years 1 to 9999": event_of(value, FIRST, event("c", dated, 4)),
        "ISO 8601": event_of(value, FIRST, event("c", avro_row(row) | {"at": "infinity"}, 5)),
        "a row that is not there": event_of(value, FIRST, event("u", avro_row(row) | {"note": UNAVAILABLE}, 6)),
    }
    for id, each in enumerate(bad.values()):
        produce(kafka, topic, each, key=framed(key, written(KEY, {"id": id})))
    produce(kafka, topic, good, key=b"none")
    produce(kafka, topic, good, key=framed(key, written(KEY, {"id": 99})))
    tables = avro(topic, "e"), avro(topic, "d", on_bad_record="deadLetter")
    count = len(bad) + 1
    with Run(tmp_path, pinned(spec_of(kafka, *tables, registry=server.url))) as run:
        run.catch_up()
        assert [run.source.progress()[name].malformed for name in "ed"] == [count, count]
        assert [len(oks(tmp_path, name)) for name in "ed"] == [1, 1]
        assert len(errors(tmp_path, "e")) == count
        produce(kafka, topic, good, key=framed(key, written(KEY, {"id": 2})))
        run.catch_up()
    assert len(errors(tmp_path, "e")) == count - 1
    letters: list[Any] = oks(tmp_path, "d_dead_letter")
    reasons = {row[1]: row[5] for row in letters}
    assert sorted(reasons) == list(range(count))
    for offset, why in enumerate(bad):
        assert why in reasons[offset]
    assert reasons[len(bad)].startswith("key: it has no frame")


def test_a_truncated_table_stops(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    topic, row = new_topic(kafka), random_row(random.Random(1), 1, "a")
    key, value = server.register("key", KEY), server.register("value", FIRST)
    spec = pinned(spec_of(kafka, avro(topic), registry=server.url))
    sent = [event("c", avro_row(row), 1), event("m", None, 2)]
    produce(kafka, topic, *(event_of(value, FIRST, each) for each in sent), key=framed(key, written(KEY, {"id": 1})))
    with Run(tmp_path, spec) as run:
        run.catch_up()
        assert len(oks(tmp_path, "a")) == 1
        produce(kafka, topic, event_of(value, FIRST, event("t", None, 3)))
        run.until(run.source.stop_reasons)
        text = run.source.stop_reasons()["a"]
    assert text == f"Truncated: table a: the table was truncated upstream: partition 0 of topic {topic} at offset 2"
    assert oks(tmp_path, "a") == [tuple(row.values())]


def test_the_schema_may_be_a_part_of_the_row(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    """An inline schema of some fields, with their types or as what Debezium's names annotate; keys in JSON."""
    topic, row = new_topic(kafka), random_row(random.Random(1), 7, "a") | {"day": date(2020, 2, 3)}
    row["at"] = datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)
    value = server.register("value", FIRST)
    part = record("Row", nullable("int", "day"), nullable("string", "at"), nullable("string", "gone"))
    schema = KafkaSchema(json.dumps(record("E", nullable(part, "after"))))
    json_keys = {"key_format": "json", "key_columns": (Column("id", BIGINT),), "key_schema": None, "key_framed": False}
    table = avro(topic, schema=schema, **json_keys)
    produce(kafka, topic, event_of(value, FIRST, event("c", avro_row(row), 1)), key=b'{"id": 7}')
    with Run(tmp_path, spec_of(kafka, table, registry=server.url)) as run:
        run.catch_up()
    assert oks(tmp_path, "a") == [(7, days(row["day"]), "2020-02-03T04:05:06Z", None)]


def test_values_without_a_frame(kafka: Broker, tmp_path: Path) -> None:
    """They are written with the schema that the table names."""
    topic, only = new_topic(kafka), envelope(FIELDS[0])
    options = {"framed": False, "key_framed": False, "key_schema": KafkaSchema(json.dumps(KEY))}
    table = avro(topic, schema=KafkaSchema(json.dumps(only)), **options)
    sent = event_of(0, only, event("c", {"id": 5}, 1))
    assert sent is not None
    produce(kafka, topic, sent[5:], key=written(KEY, {"id": 5}))
    with Run(tmp_path, spec_of(kafka, table)) as run:
        run.catch_up()
    assert oks(tmp_path, "a") == [(5,)]


@pytest.mark.parametrize(
    ("name", "type", "more", "column"),
    [
        ("io.debezium.time.Date", "int", {}, "date"),
        ("io.debezium.time.Timestamp", "long", {}, "timestamp_ntz"),
        ("io.debezium.time.MicroTimestamp", "long", {}, "timestamp_ntz"),
        ("io.debezium.time.NanoTimestamp", "long", {}, "bigint"),
        ("io.debezium.time.Time", "int", {}, "int"),
        ("io.debezium.time.Date", "long", {}, "bigint"),
        ("io.debezium.time.IsoDate", "string", {}, "date"),
        ("io.debezium.time.IsoTimestamp", "string", {}, "timestamp_ntz"),
        ("io.debezium.time.ZonedTimestamp", "string", {}, "timestamp"),
        ("io.debezium.data.Json", "string", {}, "string"),
        ("org.apache.kafka.connect.data.Date", "int", {"logicalType": "date"}, "date"),
        ("org.apache.kafka.connect.data.Timestamp", "long", {"logicalType": "timestamp-millis"}, "timestamp_ntz"),
        (CONNECT_DECIMAL, "bytes", {"logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        (CONNECT_DECIMAL, "bytes", {"logicalType": "decimal", "precision": 64, "scale": 2}, "decimal(38,2)"),
    ],
)
def test_types_by_their_names_in_connect(name: str, type: str, more: Values, column: str) -> None:
    """In values and in keys; of a table with another envelope only Avro's logical types count."""
    field = {"name": "x", "type": {"type": type, "connect.name": name} | more}
    key, value = KafkaSchema(json.dumps(record("Key", field))), KafkaSchema(json.dumps(envelope(field | {"name": "y"})))
    table = avro("T", schema=value, key_schema=key)
    (found,) = tables_of(KafkaSource(("h:9",), (table,)), no_secret)
    assert [str(each.type) for each in found.columns] == [column, column]
    if "iso" in name.lower() or "Zoned" in name:
        plain = replace(table, envelope="upsert", schema=KafkaSchema(json.dumps(record("V", field | {"name": "y"}))))
        (found,) = tables_of(KafkaSource(("h:9",), (plain,)), no_secret)
        assert [str(each.type) for each in found.columns] == ["string", "string"]


def test_what_is_refused() -> None:
    whole, key = KafkaSchema(json.dumps(FIRST)), KafkaSchema(json.dumps(KEY))
    flat = KafkaSchema(json.dumps(record("Value", *FIELDS)))
    of_text = KafkaSchema(json.dumps(record("E", nullable("string", "after"))))
    part = KafkaSchema(json.dumps(record("E", nullable(record("Value", *FIELDS), "after"))))
    mapped = KafkaSchema(json.dumps(envelope(nullable({"type": "map", "values": "int"}, "m"))))
    for options, why in (
        ({"schema": flat}, "a change event of Debezium is a record"),
        ({"schema": of_text}, r"\$.after: its type is string"),
        ({"schema": mapped}, r"\$.after.m: type map"),
    ):
        table = replace(avro("p.T", schema=whole, key_schema=key), **options)  # type: ignore[arg-type]
        with pytest.raises(SourceUnusable, match=why):
            tables_of(KafkaSource(("h:9",), (table,)), no_secret)
    (found,) = tables_of(KafkaSource(("h:9",), (avro("p.T", schema=part, key_schema=key),)), no_secret)
    assert [str(column.type) for column in found.columns][4:7] == ["date", "timestamp_ntz", "timestamp"]
