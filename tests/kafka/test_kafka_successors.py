"""A table of a topic and its successor, which has further columns: both have the same records at each time, or the
successor says why it does not begin."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.test_kafka_crashes import KEY, LOOP
from tests.kafka.topics import (
    COLUMNS,
    PLACE,
    Run,
    add_partitions,
    consumed,
    delete_records,
    delete_topic,
    new_topic,
    no_secret,
    produce,
    producer,
    spec_of,
    upper,
)
from tests.storage.dying_appends import die_around
from tests.storage.ingestion_samples import description, errors, oks
from tests.waiting import until
from tidemark_persist import open_shard
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka import source as kafka_source
from tidemark_replica.storage.kafka.connection import KafkaClients
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.kafka.positions import Position, positions
from tidemark_replica.storage.kafka.records_left import check_records

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
VIP = Column("vip", STRING)
FOR_GOOD = "new readers of t wait for good: remove t from the spec, and add a table of another name"


def table(topic: str, **options: Any) -> KafkaTable:
    return replace(KafkaTable("t", topic, "json", COLUMNS), **options)


def keyed(topic: str, **options: Any) -> KafkaTable:
    return table(topic, envelope="upsert", key_format="text", key_columns=KEY, **options)


def grown(spec: KafkaSource, column: Column = VIP, number: int = 2) -> KafkaSource:
    """With a successor of the last table."""
    last = spec.tables[-1]
    added = (*last.added, column.name)
    following = replace(last, name=f"t.{number}", columns=(*last.columns, column), added=added)
    return replace(spec, tables=(*spec.tables, following))


def ingested(root: Path, spec: KafkaSource) -> None:
    with Run(root, spec) as run:
        run.catch_up()


def refused(root: Path, spec: KafkaSource) -> str:
    """The reason why the edit is refused; empty where it is not."""
    pinned = description(root, spec, tables_of(spec, no_secret))
    try:
        check_records(grown(spec).tables[-1], KafkaClients(spec, no_secret), pinned)
    except SourceUnusable as error:
        return str(error)
    return ""


def stopped(kafka: Broker, root: Path, spec: KafkaSource) -> str:
    """The reason why the successor stops. The first table goes on."""
    with Run(root, spec) as run:
        run.until(run.source.stop_reasons)
        assert run.source.stop_reasons().keys() == {"t.2"}
        produce(kafka, spec.tables[0].topic, {"id": 100}, key=b"x")
        run.until(lambda: run.is_at_end(spec.tables[0]))
        why: str = run.source.stop_reasons()["t.2"]
    with Run(root, spec) as run:
        run.tick(3)
        assert run.source.stop_reasons() == {"t.2": why}
        assert (upper(root, "t.2"), upper(root, "t")) == (0, run.at + 1)
    return why


@pytest.fixture(autouse=True)
def topics_are_looked_at_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "LOOK_SECONDS", 0.0)


def test_records_of_before_have_what_the_topic_says(kafka: Broker, tmp_path: Path) -> None:
    """The successor has a field that the first table did not take. Later records are in both at one time, and no time
    shows the successor without the earlier ones. The first table goes, and the successor goes on."""
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1, "vip": "yes"}, {"id": 2, "name": "b"}, b"{bad", None)
    spec = spec_of(kafka, table(topic, on_bad_record="deadLetter", metadata=PLACE))
    ingested(tmp_path, spec)
    both = grown(spec)
    with Run(tmp_path, both) as run:
        assert upper(tmp_path, "t.2") == upper(tmp_path, "t_dead_letter.2") == 0
        assert "t.2" in run.source.unbound_tables()
        run.tick()
        begun = run.at
        assert upper(tmp_path, "t.2") == upper(tmp_path, "t_dead_letter.2") == upper(tmp_path, "t") == begun + 1
        assert open_shard(f"{tmp_path}/t.2").state().since == begun
        rows = [(1, None, "yes", 0, 0), (2, "b", None, 0, 1), (None, None, None, 0, 3)]
        assert oks(tmp_path, "t.2") == sorted(rows, key=repr)
        assert oks(tmp_path, "t_dead_letter.2") == oks(tmp_path, "t_dead_letter")
        for number in (5, 6):
            produce(kafka, topic, {"id": number, "vip": "?"})
            run.catch_up()
            assert [row[0] for row in oks(tmp_path, "t")] == [row[0] for row in oks(tmp_path, "t.2")]
            assert run.source._tables["t.2"]._reader is None, "one read feeds both"
            assert {name: report.behind for name, report in run.source.progress().items()} == {"t": 0, "t.2": 0}
    alone = replace(both, tables=both.tables[1:])
    produce(kafka, topic, {"id": 7, "vip": "no"})
    ingested(tmp_path, alone)
    assert (7, None, "no", 0, 6) in oks(tmp_path, "t.2")


def test_a_start_that_is_not_the_first_record(kafka: Broker, tmp_path: Path) -> None:
    """The successor begins where the first table began, not where its `start` leads now."""
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1})
    spec = spec_of(kafka, table(topic, start="latest"))
    ingested(tmp_path, spec)
    produce(kafka, topic, {"id": 2, "vip": "yes"})
    ingested(tmp_path, spec)
    ingested(tmp_path, grown(spec))
    assert oks(tmp_path, "t.2") == [(2, None, "yes")]


def test_two_edits_one_after_the_other(kafka: Broker, tmp_path: Path) -> None:
    """A second successor comes before the first one has begun, and begins beside it, in pieces."""
    topic = new_topic(kafka, 2)
    for i in range(40):
        produce(kafka, topic, {"id": i, "vip": "v", "more": "m"}, partition=i % 2)
    spec = spec_of(kafka, table(topic), max_bytes_per_tick=200)
    ingested(tmp_path, spec)
    twice = grown(spec)
    with Run(tmp_path, twice) as run:
        run.tick()
        assert (upper(tmp_path, "t.2"), run.source.progress()["t.2"].snapshot_percent) < (1, 100)
    twice = grown(twice, Column("more", STRING), 3)
    add_partitions(kafka, topic, 3)
    produce(kafka, topic, {"id": 40, "vip": "v", "more": "m"}, partition=2)
    ingested(tmp_path, twice)
    assert oks(tmp_path, "t.2") == sorted([(i, None, "v") for i in range(41)], key=repr)
    assert oks(tmp_path, "t.3") == sorted([(i, None, "v", "m") for i in range(41)], key=repr)


def test_a_key_that_may_have_moved_to_another_partition_is_not_read_again(kafka: Broker, tmp_path: Path) -> None:
    """Read again, its older record would be the last, with another value of the new column."""
    topic = new_topic(kafka)
    produce(kafka, topic, *({"id": i} for i in range(9)), key=b"k")
    spec = spec_of(kafka, keyed(topic))
    ingested(tmp_path, spec)
    assert refused(tmp_path, spec) == ""
    add_partitions(kafka, topic, 2)
    produce(kafka, topic, {"id": 8, "vip": "yes"}, key=b"k", partition=1)
    ingested(tmp_path, spec)
    assert "got partitions while rows are by key" in refused(tmp_path, spec)
    assert stopped(kafka, tmp_path, grown(spec)).startswith("RecordsGone")


def test_records_that_retention_took_are_missing_for_good(kafka: Broker, tmp_path: Path) -> None:
    """The edit is refused; where the records go after it, the successor says so."""
    topic = new_topic(kafka)
    produce(kafka, topic, *({"id": i, "vip": "v"} for i in range(5)))
    spec = spec_of(kafka, table(topic))
    ingested(tmp_path, spec)
    assert refused(tmp_path, spec) == ""
    delete_records(kafka, topic, 0, 2)
    assert "partition 0 of topic" in refused(tmp_path, spec)
    assert "begins at offset 2, and the table at 0; give the table another name" in refused(tmp_path, spec)
    why = stopped(kafka, tmp_path, grown(spec))
    assert why.startswith("RecordsGone: table t cannot begin with its further columns")
    assert why.endswith(FOR_GOOD)


def test_retention_overtakes_while_records_are_read_again(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, *({"id": i, "name": "x" * 50} for i in range(40)))
    spec = spec_of(kafka, table(topic), max_bytes_per_tick=200)
    ingested(tmp_path, spec)
    with Run(tmp_path, grown(spec)) as run:
        run.tick(3)
        assert 0 < run.source._successors.again["t.2"].missing(run.source._bound["t"]) < 40
        run.source._tables["t.2"].close()  # it forgets what it fetched ahead
        delete_records(kafka, topic, 0, 39)
        run.until(run.source.stop_reasons)
        assert run.source.stop_reasons()["t.2"].startswith("RecordsGone: ")
        assert list((tmp_path / "t.2").glob("*.parquet")) == []


def test_another_topic_of_the_name_has_other_records(kafka: Broker, tmp_path: Path) -> None:
    """Also where it has as many, and the first table has gone on with it."""
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1}, {"id": 2})
    spec = spec_of(kafka, table(topic, on_gap="skip"))
    ingested(tmp_path, spec)
    delete_topic(kafka, topic)
    until(lambda: topic not in kafka.admin().list_topics(timeout=10).topics)
    new_topic(kafka, name=topic)
    produce(kafka, topic, {"id": 3}, {"id": 4})
    assert "was created anew" in refused(tmp_path, spec)
    with Run(tmp_path, spec) as run:
        run.until(lambda: oks(tmp_path, "t") == [(n, None) for n in (1, 2, 3, 4)])
    assert "it passed over a gap" in refused(tmp_path, spec)
    assert "it passed over a gap" in stopped(kafka, tmp_path, grown(spec))


def test_compaction_leaves_records_out(kafka: Broker, tmp_path: Path) -> None:
    """They are counted, whatever the policy of the topic is by now."""
    config = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.001"}
    topic = new_topic(kafka, **config)
    produce(kafka, topic, {"id": 1}, {"id": 2}, {"id": 3}, key=b"k")
    spec = spec_of(kafka, table(topic))
    ingested(tmp_path, spec)
    assert "is compacted (cleanup.policy: compact)" in refused(tmp_path, spec)
    at = [99]

    def compacted() -> bool:
        at[0] += 1
        produce(kafka, topic, {"id": at[0]}, key=b"k")  # a segment that is written to is not compacted
        return all(json.loads(record.value())["id"] > 3 for record in consumed(kafka, topic, 1))

    until(compacted)
    ingested(tmp_path, spec)
    why = stopped(kafka, tmp_path, grown(spec))
    assert why.startswith("RecordsGone: ")
    assert "of them are left in the topic" in why


def compacted_topic(kafka: Broker) -> str:
    config = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.001"}
    return new_topic(kafka, **config, delete_retention_ms="0")


def compact(kafka: Broker, topic: str, write: Callable[[], object], before: int) -> None:
    """Writes until at most half of the offsets below this one are left."""

    def is_compacted() -> bool:
        write()  # a segment that is written to is not compacted
        return sum(record.offset() < before for record in consumed(kafka, topic, 1)) <= before // 2

    until(is_compacted)


@pytest.mark.parametrize("seed", range(3))
def test_rows_by_key_of_a_compacted_topic(kafka: Broker, tmp_path: Path, seed: int) -> None:
    """The newest record of each key is enough. Newer ones come at each tick, and more is compacted while the rest is
    read again; at each time both tables have the same records, and the successor what they say."""
    draw, topic, values = random.Random(seed), compacted_topic(kafka), dict[int, Any]()

    def write(count: int = 3) -> None:
        writer = producer(kafka)
        for _ in range(count):
            key, value = f"{draw.randrange(8)}", {"id": draw.randrange(2), "vip": f"{draw.random()}"}
            deletes = draw.random() < 0.2

            def note(_: Any, record: Any, value: Any = None if deletes else value) -> None:
                values[record.offset()] = value

            writer.produce(topic, None if deletes else json.dumps(value), key, 0, on_delivery=note)
        assert writer.flush(60) == 0

    write(60)
    spec = spec_of(kafka, keyed(topic, metadata=PLACE), max_bytes_per_tick=200)
    ingested(tmp_path, spec)
    compact(kafka, topic, write, 60)
    ingested(tmp_path, spec)
    assert refused(tmp_path, spec) == ""
    both, at = grown(spec), []
    with Run(tmp_path, both) as run:
        run.tick(2)
        compact(kafka, topic, write, len(values))
        for _ in range(60):
            write()
            run.tick()
            at += [run.at] if upper(tmp_path, "t.2") else []
            if len(at) > 3:
                break
        else:
            raise AssertionError(run.source.stop_reasons())
        run.catch_up()
        assert run.source._successors.in_step() == {"t": ["t.2"]}
        at.append(run.at)
    for moment in at:
        rows: list[Any] = oks(tmp_path, "t.2", moment)
        assert [(key, id, name, p, o) for key, id, name, _, p, o in rows] == oks(tmp_path, "t", moment)
        assert all(values[row[5]] == {"id": row[1], "vip": row[3]} for row in rows)
    newest = {record.key().decode(): record.offset() for record in consumed(kafka, topic, 1)}
    rows = oks(tmp_path, "t.2", at[-1])
    assert {row[0]: row[5] for row in rows} == {key: o for key, o in newest.items() if values[o] is not None}


def test_a_record_is_compacted_while_those_before_it_are_read_again(kafka: Broker, tmp_path: Path) -> None:
    """The record before it has the same row, but in the new column. The successor begins where the newer record is that
    took its place, and no time shows the older one."""
    topic, vips = compacted_topic(kafka), ["old", "newer"]
    for vip in vips:
        produce(kafka, topic, {"id": 1, "vip": vip}, key=b"k")
    spec = spec_of(kafka, keyed(topic), max_bytes_per_tick=20)
    ingested(tmp_path, spec)

    def is_compacted() -> bool:
        vips.append(f"v{len(vips)}")
        produce(kafka, topic, {"id": 1, "vip": vips[-1]}, key=b"k")
        return all(record.offset() != 1 for record in consumed(kafka, topic, 1))

    with Run(tmp_path, grown(spec)) as run:
        run.tick()
        assert run.source._successors.again["t.2"].missing(run.source._bound["t"]) == 1
        run.source._tables["t.2"].close()  # it forgets what it fetched ahead
        until(is_compacted)
        run.until(lambda: upper(tmp_path, "t.2"))
        for _ in range(3):
            [(_, _, _, vip)] = oks(tmp_path, "t.2")
            assert vip == vips[run.source._bound["t.2"].offsets[0] - 1]
            run.tick()


@pytest.mark.parametrize("moment", range(1, 9))
def test_death_around_each_append_of_the_begin(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """No time shows the successor without the records that the first table had before."""
    topic = new_topic(kafka)
    spec = spec_of(kafka, table(topic, on_bad_record="deadLetter"))
    for i in range(3):
        produce(kafka, topic, {"id": i, "vip": f"{i}"}, b"{bad")
        ingested(tmp_path, spec)
    with Run(tmp_path, grown(spec)) as run, monkeypatch.context() as death:
        die_around(death, moment)
        with pytest.raises(KeyboardInterrupt):
            run.tick(2)
    with Run(tmp_path, grown(spec)) as run:
        run.catch_up()
    for name, count in (("t.2", 3), ("t_dead_letter.2", 3)):
        since, end = open_shard(f"{tmp_path}/{name}").state().since, upper(tmp_path, name)
        assert 0 < since < end == upper(tmp_path, "t")
        assert {len(oks(tmp_path, name, at)) for at in (since, end - 1)} == {count}


def test_dead_letters_of_a_compacted_topic_are_gone(kafka: Broker, tmp_path: Path) -> None:
    """With a malformed record, a row is that of a record before it, which may be gone."""
    topic = compacted_topic(kafka)
    produce(kafka, topic, {"id": 1}, b"{bad", *({"id": i} for i in range(2, 10)), key=b"k")
    spec = spec_of(kafka, keyed(topic, on_bad_record="deadLetter"))
    ingested(tmp_path, spec)
    compact(kafka, topic, lambda: produce(kafka, topic, {"id": 99}, key=b"k"), 10)
    ingested(tmp_path, spec)
    assert "and some were dead letters" in stopped(kafka, tmp_path, grown(spec))


@pytest.mark.parametrize("form", [table, keyed])
def test_a_value_does_not_fit_its_new_column(kafka: Broker, tmp_path: Path, form: Any) -> None:
    """Its record is an error of the successor. Rows by key would be others than those of the first table: it does not
    begin."""
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1, "vip": "7"}, key=b"a")
    produce(kafka, topic, {"id": 2, "vip": 7}, key=b"b")
    spec = spec_of(kafka, form(topic))
    ingested(tmp_path, spec)
    following = grown(spec, Column("vip", BIGINT))
    if form is keyed:
        why = stopped(kafka, tmp_path, following)
        assert why.startswith("RowsDiffer: table t cannot begin with its further columns")
        assert why.endswith(FOR_GOOD)
        return
    ingested(tmp_path, following)
    assert (oks(tmp_path, "t.2"), len(errors(tmp_path, "t.2"))) == ([(2, None, 7)], 1)
    assert errors(tmp_path, "t") == {}


def test_a_table_of_an_earlier_release_counted_nothing() -> None:
    """It moves offsets, and knows no entries of records: they do not count any more."""
    at = Position("id", {0: 7, 1: 2}, begins={0: 5, 1: 0}, records=4)
    entries = at.entries("t", None)
    assert positions({key: value for key, value in entries.items() if value is not None}) == {"t": at}
    moved = {**entries, ("t", "offset/0"): "8"}
    known = positions({key: value for key, value in moved.items() if value is not None})["t"]
    assert (known.knows_records, known.offsets) == (False, {0: 8, 1: 2})
    assert known.moved({0: 9, 1: 2}, {0: 8, 1: 2}, 1).knows_records is False
    gone = {key[1]: value for key, value in known.entries("t", at).items() if value is None}
    assert gone.keys() == {"begin/0", "begin/1", "records"}


@pytest.mark.parametrize("kills", [pytest.param(4), pytest.param(30, marks=pytest.mark.slow)])
def test_sigkill_while_records_are_read_again(kafka: Broker, tmp_path: Path, kills: int) -> None:
    moments, topic = random.Random(kills), new_topic(kafka, 3)
    writer, written = producer(kafka), [0]

    def write(count: int) -> None:
        for _ in range(count):
            written[0] += 1
            value = {"id": written[0], "vip": f"v{written[0]}", "more": "m"}
            writer.produce(topic, json.dumps(value), f"{written[0] % 9}", written[0] % 9 % 3)
        writer.flush()

    write(200)
    tables = (table(topic, metadata=PLACE), replace(keyed(topic, metadata=PLACE), name="k"))
    spec = spec_of(kafka, *tables, max_bytes_per_tick=2_000)
    ingested(tmp_path, spec)
    second = tuple(replace(t, name=f"{t.name}.2", columns=(*t.columns, VIP), added=("vip",)) for t in tables)
    spec = replace(spec, tables=(*tables, *second))
    (tmp_path / "spec").write_bytes(codec.encode(spec))
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path), str(tmp_path / "spec")],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        for _ in range(moments.randrange(2, 12)):
            assert process.stdout.readline().startswith(b"all before")
            write(moments.randrange(1, 5))
        time.sleep(moments.uniform(0.0, 0.1))  # not a wait for anything: the moment of death
        process.send_signal(signal.SIGKILL)
        process.wait()
    with Run(tmp_path, spec, term=2) as run:
        run.catch_up()
    records = consumed(kafka, topic, 3)
    assert len(records) == written[0]
    values = [(json.loads(r.value()), r) for r in records]
    rows = [(v["id"], None, v["vip"], r.partition(), r.offset()) for v, r in values]
    assert oks(tmp_path, "t.2") == sorted(rows, key=repr)
    newest = {
        r.key().decode(): (r.key().decode(), v["id"], None, v["vip"], r.partition(), r.offset()) for v, r in values
    }
    assert oks(tmp_path, "k.2") == sorted(newest.values(), key=repr)


def test_both_go_on_behind_a_gap_together(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1, "vip": "a"})
    spec = spec_of(kafka, table(topic, on_gap="skip"))
    ingested(tmp_path, spec)
    ingested(tmp_path, grown(spec))
    produce(kafka, topic, *({"id": i, "vip": "b"} for i in range(2, 6)))
    delete_records(kafka, topic, 0, 4)
    with Run(tmp_path, grown(spec)) as run:
        run.tick()
        while run.source._bound["t"].offsets != {0: 5}:
            run.tick()
            assert run.source._bound["t"].offsets == run.source._bound["t.2"].offsets
        assert run.source.counters() == {"gaps/t": 1, "gaps/t.2": 1}
        assert run.source._successors.in_step() == {"t": ["t.2"]}
    assert (oks(tmp_path, "t"), oks(tmp_path, "t.2")) == ([(1, None), (5, None)], [(1, None, "a"), (5, None, "b")])
