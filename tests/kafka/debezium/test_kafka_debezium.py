"""Change events of Debezium as its JSON converter writes them: the table is the table upstream, at some point of its
log, and never goes back. Events are those of a log that the tests keep; no connector runs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.topics import Run, consumed, new_topic, produce, spec_of
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column, SqlType
from tidemark_replica.storage.kafka.by_key.debezium import UNAVAILABLE

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
KEY = (Column("id", BIGINT),)
VALUE = (Column("name", STRING), Column("note", STRING), Column("tags", SqlType.array(STRING)))


def changes(topic: str, name: str = "t", **options: Any) -> KafkaTable:
    least: dict[str, Any] = {"envelope": "debezium", "key_format": "json", "key_columns": KEY}
    return KafkaTable(name, topic, "json", VALUE, **(least | options))


def event(op: str, after: Any, at: int, **source: Any) -> dict[str, Any]:
    """An event of PostgreSQL's connector at this place of the log."""
    origin = {"connector": "postgresql", "ts_ms": 1_000 + at, "snapshot": "false", "lsn": at}
    origin["sequence"] = json.dumps([str(at - 1), str(at)])
    return {"before": None, "after": after, "source": origin | source, "op": op, "ts_ms": 5_000 + at}


def with_schema(value: Any) -> Any:
    return None if value is None else {"schema": {"type": "struct"}, "payload": value}


def key(id: int) -> bytes:
    return json.dumps({"id": id}).encode()


def row(id: int, name: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "name": name} | more


def test_events_become_rows(kafka: Broker, tmp_path: Path) -> None:
    """A snapshot, changes, a tombstone after a deletion; with and without schemas; an update that keeps a value."""
    topic = new_topic(kafka)
    spec = spec_of(kafka, changes(topic))
    with Run(tmp_path, spec) as run:
        produce(kafka, topic, event("r", row(1, "a", note="long", tags=["x"]), 5), key=key(1))
        produce(kafka, topic, with_schema(event("r", row(2, "b"), 5)), key=json.dumps(with_schema({"id": 2})).encode())
        produce(kafka, topic, event("m", None, 6))
        run.catch_up()
        assert oks(tmp_path, "t") == [(1, "a", "long", ["x"]), (2, "b", None, None)]
        produce(kafka, topic, event("u", row(1, "c", note=UNAVAILABLE, tags=[UNAVAILABLE]), 7), key=key(1))
        produce(kafka, topic, event("d", None, 8), None, key=key(2))
        produce(kafka, topic, event("c", row(3, "d", note="n"), 9), key=key(3))
        produce(kafka, topic, event("u", row(3, "e", note=UNAVAILABLE), 10), key=key(3))
        run.catch_up()
        assert run.source.progress()["t"].malformed == 0
    assert oks(tmp_path, "t") == [(1, "c", "long", ["x"]), (3, "e", "n", None)]
    assert not errors(tmp_path, "t")


def test_what_is_no_change_is_malformed(kafka: Broker, tmp_path: Path) -> None:
    """Also an update that keeps a value of a row that the table does not have."""
    topic = new_topic(kafka)
    bad = ({"op": "c"}, {"op": "x", "after": {}}, {}, [], b"{", event("u", row(1, "a", note=UNAVAILABLE), 1))
    for id, value in enumerate(bad):
        produce(kafka, topic, value, key=key(id))
    produce(kafka, topic, event("c", row(7, "a"), 2))
    tables = changes(topic, "e"), changes(topic, "d", on_bad_record="deadLetter")
    with Run(tmp_path, spec_of(kafka, *tables)) as run:
        run.catch_up()
        assert [run.source.progress()[name].malformed for name in "ed"] == [7, 7]
        assert oks(tmp_path, "e") == oks(tmp_path, "d") == []
        assert len(errors(tmp_path, "e")) == 7
        produce(kafka, topic, event("c", row(5, "a"), 3), key=key(5))
        run.catch_up()
    assert len(errors(tmp_path, "e")) == 6
    letters: list[Any] = oks(tmp_path, "d_dead_letter")
    assert sorted(row[1] for row in letters) == list(range(7))
    assert {row[1]: row[5] for row in letters}[5] == "a value is as before in a row that is not there"


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "other"])
def test_events_that_come_again(kafka: Broker, tmp_path: Path, connector: str) -> None:
    """They are left out, also by another process. A log that was restored has lower positions and later times."""
    topic = new_topic(kafka)
    spec = spec_of(kafka, changes(topic))

    def at(number: int, ms: int) -> dict[str, Any]:
        return {"connector": connector, "ts_ms": ms, "file": "bin.000009", "pos": number, "row": 0, "server_id": 1}

    first = [event("c", row(1, str(n)), n, **at(n, n)) for n in (10, 11, 12)]
    with Run(tmp_path, spec) as run:
        produce(kafka, topic, *first, key=key(1))
        run.catch_up()
    with Run(tmp_path, spec) as run:
        produce(kafka, topic, *first[:2], key=key(1))
        run.catch_up()
        known = connector != "other"
        assert oks(tmp_path, "t") == [(1, "12" if known else "11", None, None)]
        assert run.source.counters()["repeated/t"] == (2 if known else 0)
        produce(kafka, topic, event("c", row(1, "restored"), 3, **at(3, 99)), key=key(1))
        run.catch_up()
    assert oks(tmp_path, "t") == [(1, "restored", None, None)]


def test_a_truncated_table_stops(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    spec = spec_of(kafka, changes(topic))
    produce(kafka, topic, event("c", row(1, "a"), 1), key=key(1))
    with Run(tmp_path, spec) as run:
        run.catch_up()
        produce(kafka, topic, event("t", None, 2))
        run.until(run.source.stop_reasons)
        text = run.source.stop_reasons()["t"]
    with Run(tmp_path, spec) as run:
        run.tick(3)
        assert run.source.stop_reasons()["t"] == text
    assert text == f"Truncated: table t: the table was truncated upstream: partition 0 of topic {topic} at offset 1"
    assert oks(tmp_path, "t") == [(1, "a", None, None)]


@pytest.mark.parametrize("seed", range(2))
def test_oracle_random_logs(kafka: Broker, tmp_path: Path, seed: int) -> None:
    """Inserts, updates (some keep a value), deletions; the connector dies and repeats; the ingester dies, too. After
    each tick the table is what the log's events up to the last one of each partition leave."""
    draw, topic = random.Random(seed), new_topic(kafka, 2)
    spec = spec_of(kafka, changes(topic), max_bytes_per_tick=draw.choice([2_000, 1 << 20]))
    log: list[tuple[int, dict[str, Any]]] = []
    rows: dict[int, dict[str, Any]] = {}
    run, sent = Run(tmp_path, spec), 0
    for _ in range(12):
        for _ in range(draw.randrange(1, 25)):
            log.append(write(draw, rows, len(log)))
        if draw.random() < 0.4:
            sent = draw.randrange(sent + 1)
        for id, value in log[sent:]:
            wrap = with_schema if draw.random() < 0.5 else (lambda v: v)
            tail = [None] if value["op"] == "d" else []
            produce(kafka, topic, wrap(value), *tail, partition=id % 2, key=json.dumps(wrap({"id": id})).encode())
        sent = len(log)
        for _ in range(draw.randrange(3)):
            run.tick()
            check(kafka, topic, run, log)
        if draw.random() < 0.3:
            run.close()
            run = Run(tmp_path, spec)
    run.catch_up()
    check(kafka, topic, run, log)
    run.close()
    expected = [(id, r["name"], r.get("note"), r.get("tags")) for id, r in rows.items()]
    assert oks(tmp_path, "t") == sorted(expected, key=repr)


def write(draw: random.Random, rows: dict[int, dict[str, Any]], at: int) -> tuple[int, dict[str, Any]]:
    """A change of the table upstream: the row's key, and its event."""
    id, place = draw.randrange(10), at + 1
    if id in rows and draw.random() < 0.3:
        del rows[id]
        return id, event("d", None, place)
    new = row(
        id, str(place), note=draw.choice([None, "n" * draw.randrange(5)]), tags=draw.choice([None, [], ["x", "y"]])
    )
    if id not in rows:
        rows[id] = new
        return id, event("c", new, place)
    shown = dict(new)
    for name, stands_for in (("note", UNAVAILABLE), ("tags", [UNAVAILABLE])):
        if rows[id][name] and draw.random() < 0.5:
            new[name], shown[name] = rows[id][name], stands_for
    rows[id] = new
    return id, event("u", shown, place)


def check(kafka: Broker, topic: str, run: Run, log: list[tuple[int, dict[str, Any]]]) -> None:
    bound = run.source._bound.get("t")
    if bound is None:
        return
    last = {0: 0, 1: 0}
    for record in consumed(kafka, topic, 2):
        if record.value() is not None and record.offset() < bound.offsets.get(record.partition(), 0):
            value = json.loads(record.value())
            place = value.get("payload", value)["source"]["lsn"]
            last[record.partition()] = max(last[record.partition()], place)
    rows: dict[int, dict[str, Any]] = {}
    for place, (id, change) in enumerate(log, 1):
        if place > last[id % 2]:
            continue
        if change["op"] == "d":
            rows.pop(id)
            continue
        kept = {n: rows[id][n] for n in ("note", "tags") if change["after"][n] in (UNAVAILABLE, [UNAVAILABLE])}
        rows[id] = change["after"] | kept
    expected = [(id, r["name"], r["note"], r["tags"]) for id, r in rows.items()]
    assert oks(run.root, "t") == sorted(expected, key=repr)
    assert not errors(run.root, "t")
