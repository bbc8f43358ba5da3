"""Records become rows once: formats, metadata, bad records, places to start, transactions, partitions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.topics import (
    COLUMNS,
    PLACE,
    Run,
    add_partitions,
    consumed,
    either_writer,
    new_topic,
    produce,
    produce_with_header,
    producer,
    spec_of,
    transactions,
    upper,
)
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import Option
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import STRING, Column, SqlType
from tidemark_replica.values.error_text import error_text

pytestmark = pytest.mark.kafka
MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""


def test_json_becomes_rows_with_metadata(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka, retention_ms="-1")
    metadata = tuple(
        Option(name.lower(), name) for name in ("key", "keyText", "partition", "offset", "timestamp", "headers")
    )
    writer = producer(kafka)
    value = json.dumps({"id": 1, "name": "ann", "other": [1]})
    writer.produce(topic, value, "kä".encode(), 0, timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", None)])
    writer.produce(topic, None, None, 0, timestamp=1)
    writer.flush()
    with Run(tmp_path, spec_of(kafka, KafkaTable("t", topic, "json", COLUMNS, metadata))) as run:
        run.catch_up()
    full, empty = oks(tmp_path, "t")
    assert full[:6] == (1, "ann", "kä".encode(), "kä", 0, 0)
    assert full[6].isoformat() == "2023-11-14T22:13:20.123000+00:00"  # type: ignore[attr-defined]
    assert full[7] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert empty[:6] == (None, None, None, None, 0, 1)
    assert empty[7] is None


@pytest.mark.parametrize(("format", "type"), [("text", STRING), ("bytes", SqlType("binary"))])
def test_values_as_they_are(kafka: Broker, tmp_path: Path, format: str, type: SqlType) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, b"one", "größe".encode(), b"\xff", None)
    table = KafkaTable("t", topic, format, (Column("v", type),), (Option("o", "offset"),))
    with Run(tmp_path, spec_of(kafka, table)) as run:
        run.catch_up()
    if format == "bytes":
        assert oks(tmp_path, "t") == [(None, 3), (b"\xff", 2), ("größe".encode(), 1), (b"one", 0)]
    else:
        assert oks(tmp_path, "t") == [("größe", 1), ("one", 0), (None, 3)]
        assert list(errors(tmp_path, "t")) == [error_text("MALFORMED_RECORD", f"{topic}/0@2")]


def test_the_first_rows_are_told_in_percent(kafka: Broker, tmp_path: Path) -> None:
    """The percentage is of the offsets that there were as the table began. An ingester that goes on with a table does
    not know them."""
    topic, told = new_topic(kafka), list[int | None]()
    produce(kafka, topic, *({"id": i, "name": "x" * 100} for i in range(100)))
    spec = spec_of(kafka, KafkaTable("t", topic, "json", COLUMNS[:1]), max_bytes_per_tick=2_000)
    with Run(tmp_path, spec) as run:

        def has_all() -> bool:
            told.append(run.source.progress()["t"].snapshot_percent)
            return len(oks(tmp_path, "t")) == 100

        run.until(lambda: upper(tmp_path, "t") > 0)
        run.until(has_all)
        produce(kafka, topic, {"id": 100})
        run.until(lambda: len(oks(tmp_path, "t")) == 101)
        told.append(run.source.progress()["t"].snapshot_percent)
    percents = [percent for percent in told if percent is not None]
    assert percents == sorted(percents)
    assert any(0 < percent < 100 for percent in percents)
    assert told[-2:] == [None, None]
    produce(kafka, topic, *({"id": i} for i in range(101, 200)))
    with Run(tmp_path, spec) as run:
        run.until(lambda: len(oks(tmp_path, "t")) > 101)
        assert run.source.progress()["t"].snapshot_percent is None


BAD = (b'{"id":1', b',"name":"x"}', b'{"id":1}{"id":2}', b"[]", b"", b"null", b'{"id":"1"}', b'{"id":1e99}', b"\xff{}")


def test_bad_records_are_errors_or_dead_letters_and_hide_no_neighbour(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1}, *BAD, {"id": 2})
    tables = (
        KafkaTable("e", topic, "json", COLUMNS, PLACE),
        KafkaTable("d", topic, "json", COLUMNS, PLACE, on_bad_record="deadLetter"),
    )
    with Run(tmp_path, spec_of(kafka, *tables)) as run:
        run.catch_up()
        progress = run.source.progress()
    last = len(BAD) + 1
    good = [(1, None, 0, 0), (2, None, 0, last)]
    assert oks(tmp_path, "e") == oks(tmp_path, "d") == good
    assert {json.loads(text)["expression"] for text in errors(tmp_path, "e")} == {
        f"{topic}/0@{offset}" for offset in range(1, last)
    }
    letters: list[Any] = sorted(oks(tmp_path, "d_dead_letter"), key=lambda row: row[1])  # type: ignore[arg-type,return-value]
    assert [(row[0], row[1], row[4]) for row in letters] == [(0, i + 1, bad) for i, bad in enumerate(BAD)]
    assert not errors(tmp_path, "d")
    assert (progress["e"].malformed, progress["d"].malformed) == (len(BAD), len(BAD))


def test_records_whose_metadata_cannot_be_values(kafka: Broker, tmp_path: Path) -> None:
    """They are bad, one by one; a table without that metadata takes them."""
    topic = new_topic(kafka, retention_ms="-1", message_timestamp_after_max_ms=str(2**63 - 1))
    writer = producer(kafka)
    for timestamp in (1_000, 1_700_000_000_123_456_789, -1, MS_MAX, MS_MAX + 1):
        writer.produce(topic, b"{}", partition=0, timestamp=timestamp)
        writer.flush()
    produce_with_header(kafka, topic, b"\xff", b"{}")
    writer.produce(topic, b"{", partition=0, timestamp=MS_MAX + 1)
    writer.flush()
    place, at, headers = Option("o", "offset"), Option("at", "timestamp"), Option("h", "headers")
    tables = (
        KafkaTable("e", topic, "json", COLUMNS[:1], (place, at, headers)),
        KafkaTable("d", topic, "json", COLUMNS[:1], (place, at, headers), on_bad_record="deadLetter"),
        KafkaTable("n", topic, "json", COLUMNS[:1], (place,)),
    )
    with Run(tmp_path, spec_of(kafka, *tables)) as run:
        run.catch_up()
    for name in ("e", "d"):
        good = {row[1]: row[2] and row[2].isoformat() for row in oks(tmp_path, name)}  # type: ignore[attr-defined]
        assert good == {0: "1970-01-01T00:00:01+00:00", 2: None, 3: "9999-12-31T23:59:59.999000+00:00"}
    assert {json.loads(text)["expression"] for text in errors(tmp_path, "e")} == {
        f"{topic}/0@{o}" for o in (1, 4, 5, 6)
    }
    letters: Any = {row[1]: (row[2] and row[2].timestamp(), row[5]) for row in oks(tmp_path, "d_dead_letter")}  # type: ignore[attr-defined]
    assert letters.keys() == {1, 4, 5, 6}
    assert letters[1] == letters[4] == (None, "the timestamp is not in the years 1 to 9999")
    assert letters[5][0] is not None
    assert letters[5][1] == "the key of a header is not UTF-8"
    assert letters[6][0] is None
    assert {row[1] for row in oks(tmp_path, "n")} == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("start", "options", "expected"),
    [
        ("earliest", {}, {0, 1, 2, 3, 4, 10}),
        ("latest", {}, {10}),
        ("offsets", {"start_offsets": ((0, 3),)}, {3, 4, 10}),
        ("timestamp", {"start_ms": 3_000}, {2, 3, 4, 10}),
        ("timestamp", {"start_ms": 9_000_000_000_000}, {10}),
    ],
)
def test_where_it_starts(
    kafka: Broker, tmp_path: Path, start: str, options: dict[str, Any], expected: set[int]
) -> None:
    topic, writer = new_topic(kafka, retention_ms="-1"), producer(kafka)
    for i in range(5):
        writer.produce(topic, json.dumps({"id": i}), partition=0, timestamp=1_000 * (i + 1))
    writer.flush()
    with Run(tmp_path, spec_of(kafka, KafkaTable("t", topic, "json", COLUMNS[:1], start=start, **options))) as run:
        run.until(lambda: run.source._bound)
        produce(kafka, topic, {"id": 10})
        run.catch_up()
    assert {row[0] for row in oks(tmp_path, "t")} == expected


@pytest.mark.parametrize("seed", range(3))
def test_oracle_transactions_and_partitions(kafka: Broker, tmp_path: Path, seed: int) -> None:
    """Random histories: transactions that commit or abort, bad records, a partition that comes later; small pieces."""
    draw, topic = random.Random(seed), new_topic(kafka, 2)
    table = KafkaTable("t", topic, "json", COLUMNS, PLACE, on_bad_record="deadLetter")
    spec = spec_of(kafka, table, max_bytes_per_tick=draw.choice([1, 300, 1 << 20]))
    plain, partitions, number = producer(kafka), 2, 0
    transactional = transactions(kafka, topic)
    run = Run(tmp_path, spec)
    for _ in range(12):
        with either_writer(draw, plain, transactional, aborts=0.5) as writer:
            for _ in range(draw.randrange(1, 12)):
                number += 1
                value = draw.choice([json.dumps({"id": number, "name": "n" * draw.randrange(20)}), "{bad", None])
                writer.produce(topic, value, partition=draw.randrange(partitions))
        run.tick(draw.randrange(3))
        if draw.random() < 0.2:
            run.close()
            run = Run(tmp_path, spec)
        if partitions == 2 and draw.random() < 0.2:
            partitions = 3
            add_partitions(kafka, topic, 3)
            plain = producer(kafka)
            transactional = transactions(kafka, topic)
    run.catch_up()
    run.source._look_at = 0.0  # partitions that are new are noticed by the next look
    run.until(lambda: len(run.source._bound["t"].offsets) == partitions)
    run.catch_up()
    run.close()

    expected, bad = [], []
    for record in consumed(kafka, topic, partitions):
        place = (record.partition(), record.offset())
        if record.value() is None:
            expected.append((None, None, *place))
        elif record.value() == b"{bad":
            bad.append((*place, record.value()))
        else:
            row = json.loads(record.value())
            expected.append((row["id"], row["name"], *place))
    assert oks(tmp_path, "t") == sorted(expected, key=repr)
    letters: list[Any] = oks(tmp_path, "t_dead_letter")
    assert sorted((row[0], row[1], row[4]) for row in letters) == sorted(bad)


def test_a_backlog_comes_in_pieces(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, *({"id": i, "name": "x" * 1000} for i in range(3000)))
    with Run(tmp_path, spec_of(kafka, KafkaTable("t", topic, "json", COLUMNS), max_bytes_per_tick=200_000)) as run:
        run.until(lambda: run.source._bound)
        counts = []
        while not run.is_at_end(run.spec.tables[0]):
            run.tick()
            counts.append(len(oks(tmp_path, "t")))
    assert counts == sorted(counts)
    assert counts[-1] == 3000
    assert len(counts) >= 3


def test_records_that_are_read_again_are_counted_once(kafka: Broker, tmp_path: Path) -> None:
    """Records that no binding names count as not read."""
    topic = new_topic(kafka)
    produce(kafka, topic, b"{bad")
    with Run(tmp_path, spec_of(kafka, KafkaTable("t", topic, "json", COLUMNS))) as run:
        run.until(lambda: "t" in run.source._bound)
        followed, bound = run.source._tables["t"], run.source._bound["t"]
        progress = followed.read(bound, Time(run.at + 100), 1 << 20, 5.0)
        assert progress.position.offsets == {0: 1}
        followed.discard(progress)
        assert followed.malformed == 0
        run.catch_up()
        assert followed.malformed == 1
