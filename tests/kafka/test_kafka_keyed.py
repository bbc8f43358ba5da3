"""Tables by key: after each tick a table has the last row of each key that was read, once; against a dictionary."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.kafka.broker import Broker
from tests.kafka.topics import (
    Run,
    consumed,
    delete_topic,
    either_writer,
    new_topic,
    no_secret,
    produce,
    producer,
    spec_of,
    transactions,
)
from tests.storage.ingestion_samples import errors, oks
from tidemark_persist import ForeignCommit
from tidemark_protocol.plan.ingestion import Option
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column, SqlType
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.by_key import errors as keyed_errors
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.keyed_rows import table as keyed_table

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
KEY = (Column("id", BIGINT), Column("part", STRING))
VALUE = (Column("name", STRING), Column("x", SqlType("double")))
PLACE = (Option("o", "offset"),)
BAD = object()
Rows = dict[Any, tuple[Any, ...]]


def upserts(topic: str, name: str = "t", **options: Any) -> KafkaTable:
    given: dict[str, Any] = {
        "envelope": "upsert",
        "key_format": "json",
        "key_columns": KEY,
        "metadata": PLACE,
    } | options
    return KafkaTable(name, topic, "json", VALUE, **given)


def test_the_newest_record_of_a_key_is_its_row(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    one, same, two = b'{"id":1,"part":"a"}', b'{"part": "a", "id": 1, "more": 2}', b'{"id":2,"part":""}'
    spec = spec_of(kafka, upserts(topic))
    with Run(tmp_path, spec) as run:
        produce(kafka, topic, {"name": "x", "x": -0.0}, None, {"name": "y"}, key=one)
        produce(kafka, topic, None, key=two)
        run.catch_up()
        assert oks(tmp_path, "t") == [(1, "a", "y", None, 2)]
        produce(kafka, topic, {"name": "z", "x": 1.5}, key=same)
        produce(kafka, topic, {}, key=two)
        run.catch_up()
        assert oks(tmp_path, "t") == [(1, "a", "z", 1.5, 4), (2, "", None, None, 5)]
        produce(kafka, topic, None, key=one)
        run.catch_up()
    assert oks(tmp_path, "t") == [(2, "", None, None, 5)]
    assert not errors(tmp_path, "t")


def test_a_row_that_another_program_deletes_is_not_retracted(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deletes the row in the tick that replaces it, after that has read the row: the tick is made again."""
    topic, one, two = new_topic(kafka), b'{"id":1,"part":"a"}', b'{"id":2,"part":"a"}'
    spec = spec_of(kafka, upserts(topic))
    with Run(tmp_path, spec) as run:
        produce(kafka, topic, {"name": "x"}, key=one)
        produce(kafka, topic, {"name": "x"}, key=two)
        run.catch_up()
        discover, deleted = run.source.discover, list[bool]()

        def discovers_what_is_deleted(time: Any) -> Any:
            binding = discover(time)
            if binding.num_rows and not deleted:
                DeltaTable(str(tmp_path / "t")).delete("id = 1")
                deleted.append(True)
            return binding

        monkeypatch.setattr(run.source, "discover", discovers_what_is_deleted)
        produce(kafka, topic, {"name": "y"}, key=one)
        with pytest.raises(ForeignCommit, match="DELETE"):
            run.until(lambda: False)
        assert deleted
    with Run(tmp_path, spec) as run:
        run.catch_up()
    assert oks(tmp_path, "t") == [(1, "a", "y", None, 2), (2, "a", "x", None, 1)]


@pytest.mark.parametrize(("format", "type"), [("text", STRING), ("bytes", SqlType("binary"))])
def test_keys_as_they_are(kafka: Broker, tmp_path: Path, format: str, type: SqlType) -> None:
    topic = new_topic(kafka)
    for key, value in ((b"a", {"name": "1"}), (b"\xff", {"name": "2"}), (b"", {"name": "3"}), (b"a", {"name": "4"})):
        produce(kafka, topic, value, key=key)
    table = upserts(topic, key_format=format, key_columns=(Column("k", type),), metadata=())
    with Run(tmp_path, spec_of(kafka, table)) as run:
        run.catch_up()
    if format == "text":
        assert oks(tmp_path, "t") == [("", "3", None), ("a", "4", None)]
        assert [json.loads(text)["expression"] for text in errors(tmp_path, "t")] == [f"{topic}/0@1"]
    else:
        assert oks(tmp_path, "t") == [(b"", "3", None), (b"\xff", "2", None), (b"a", "4", None)]


def test_a_malformed_value_is_an_error_of_its_key(kafka: Broker, tmp_path: Path) -> None:
    """It takes the place of the row, and goes when the key is written again or deleted, also by another process. With
    dead letters the row stays. A malformed key is an error that stays."""
    topic, one, two = new_topic(kafka), b'{"id":1,"part":"a"}', b'{"id":2,"part":"a"}'
    tables = upserts(topic, "e"), upserts(topic, "d", on_bad_record="deadLetter")
    spec = spec_of(kafka, *tables)
    produce(kafka, topic, {"name": "x"}, b"{bad", key=one)
    produce(kafka, topic, {"x": "no number"}, key=two)
    produce(kafka, topic, {"name": "x"}, key=b'{"id":1}')
    produce(kafka, topic, {"name": "x"})
    with Run(tmp_path, spec) as run:
        run.catch_up()
        assert oks(tmp_path, "e") == []
        assert oks(tmp_path, "d") == [(1, "a", "x", None, 0)]
        places = [json.loads(text)["expression"].split(" ")[0] for text in errors(tmp_path, "e")]
        assert sorted(places) == [f"{topic}/0@{offset}" for offset in (1, 2, 3, 4)]
        assert run.source.progress()["e"].malformed == 4
    letters: list[Any] = oks(tmp_path, "d_dead_letter")
    assert sorted((row[1], row[5]) for row in letters)[2:] == [
        (3, "key: a column of it is missing or null"),
        (4, "key: a column of it is missing or null"),
    ]
    with Run(tmp_path, spec) as run:
        produce(kafka, topic, {"name": "y"}, key=one)
        produce(kafka, topic, None, key=two)
        run.catch_up()
        assert oks(tmp_path, "e") == oks(tmp_path, "d") == [(1, "a", "y", None, 5)]
        assert len(errors(tmp_path, "e")) == 2
        produce(kafka, topic, b"{bad", {"name": "z"}, key=one)
        run.catch_up()
    assert oks(tmp_path, "e") == oks(tmp_path, "d") == [(1, "a", "z", None, 8)]
    assert len(errors(tmp_path, "e")) == 2


def test_too_many_errors_stop_the_table(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_errors, "ERRORS_MAX", 2)
    topic = new_topic(kafka)
    spec = spec_of(kafka, upserts(topic))
    with Run(tmp_path, spec) as run:
        for id in range(2):
            produce(kafka, topic, b"{bad", key=json.dumps({"id": id, "part": ""}).encode())
        run.catch_up()
        produce(kafka, topic, b"{bad", key=b'{"id":7,"part":""}')
        run.until(run.source.stop_reasons)
    with Run(tmp_path, spec) as run:
        run.tick(3)
        text = run.source.stop_reasons()["t"]
    assert text == "TooManyErrors: table t: 3 malformed records would be errors of the table"
    assert len(errors(tmp_path, "t")) == 2


def test_a_key_is_not_null_and_no_floating_number() -> None:
    (table,) = tables_of(spec_of(Broker(Path(), 9), upserts("T")), no_secret)
    assert table.keys == ((0, 1),)
    assert not table.monotonic
    assert [(c.name, c.nullable) for c in table.columns[:3]] == [("id", False), ("part", False), ("name", True)]
    floating = upserts("T", key_columns=(Column("f", SqlType("double")),))
    with pytest.raises(SourceUnusable, match="column f is double: a key has no floating numbers, arrays or structs"):
        tables_of(spec_of(Broker(Path(), 9), floating), no_secret)


@pytest.mark.parametrize("seed", range(2))
def test_oracle_random_histories(kafka: Broker, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces and small shares, aborted transactions, bad values, other processes; every tick is compared."""
    monkeypatch.setattr(keyed_table, "SHARE_BYTES", 200)
    draw, topic = random.Random(seed), new_topic(kafka, 2)
    tables = upserts(topic, "e"), upserts(topic, "d", on_bad_record="deadLetter")
    spec = spec_of(kafka, *tables, max_bytes_per_tick=draw.choice([400, 1 << 20]))
    plain, transactional = producer(kafka), transactions(kafka, topic)
    run = Run(tmp_path, spec)
    for _ in range(10):
        with either_writer(draw, plain, transactional, aborts=0.4) as writer:
            for _ in range(draw.randrange(1, 30)):
                id, part = draw.randrange(12), draw.choice("ab")
                value = draw.choice(
                    [json.dumps({"name": "n", "x": draw.random()}), "{bad", None, '{"x":0}', '{"x":-0.0}']
                )
                writer.produce(topic, value, json.dumps({"id": id, "part": part}), partition=id % 2)
        for _ in range(draw.randrange(4)):
            run.tick()
            check(kafka, topic, run)
        if draw.random() < 0.3:
            run.close()
            run = Run(tmp_path, spec)
    run.catch_up()
    check(kafka, topic, run)
    run.close()


def check(kafka: Broker, topic: str, run: Run) -> None:
    """Both tables have what the records before their bound offsets leave."""
    records = consumed(kafka, topic, 2)
    for name in ("e", "d"):
        bound = run.source._bound.get(name)
        offsets = bound.offsets if bound is not None else {}
        rows = state((r for r in records if r.offset() < offsets.get(r.partition(), 0)), name == "d")
        good = sorted((row for row in rows.values() if row[-1] is not BAD), key=repr)
        if run.one.table_shards()[0][1].state().upper:  # type: ignore[index]
            assert oks(run.root, name) == good
            assert len(errors(run.root, name)) == len(rows) - len(good)


def state(records: Iterable[Any], keeps: bool) -> Rows:
    """The rows by key; a malformed value leaves the row where `keeps`, else BAD."""
    rows: Rows = {}
    for record in records:
        key = tuple(json.loads(record.key()).values())
        if record.value() is None:
            rows.pop(key, None)
        elif record.value() == b"{bad":
            if not keeps:
                rows[key] = (BAD,)
        else:
            value = json.loads(record.value())
            rows[key] = (*key, value.get("name"), float(value["x"]) + 0.0, record.offset())
    return rows


def test_tables_come_and_go(kafka: Broker, tmp_path: Path) -> None:
    """A revision adds a table and removes another; the one that stays notices nothing. Of the removed one bindings stay
    in the remap, also that it had stopped."""
    topics = [new_topic(kafka) for _ in range(3)]
    stays, goes, comes = (upserts(topic, name) for topic, name in zip(topics, ("s", "g", "c"), strict=True))
    for topic in topics:
        produce(kafka, topic, {"name": "x"}, key=b'{"id":1,"part":""}')
    with Run(tmp_path, spec_of(kafka, stays, goes, group="g")) as run:
        run.catch_up()
        delete_topic(kafka, topics[1])
        run.source._look_at = 0.0
        run.until(run.source.stop_reasons)
    with Run(tmp_path, spec_of(kafka, stays, comes, group="g")) as run:
        produce(kafka, topics[0], {"name": "y"}, key=b'{"id":1,"part":""}')
        run.catch_up()
        assert not run.source.stop_reasons()
        assert run.source.progress().keys() == {"s", "c"}
    assert oks(tmp_path, "s") == [(1, "", "y", None, 1)]
    assert oks(tmp_path, "c") == [(1, "", "x", None, 0)]
