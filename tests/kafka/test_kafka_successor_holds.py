"""The cases in which a successor is held, or begins wrongly: topics made anew, tables before it that stop, many of them
at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.test_kafka_successors import VIP, compact, compacted_topic, grown, ingested, keyed, table
from tests.kafka.topics import Run, consumed, delete_topic, new_topic, produce, producer, spec_of, upper
from tests.storage.ingestion_samples import oks
from tests.waiting import until
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka import followed_topic, read_again, successors
from tidemark_replica.storage.kafka import source as kafka_source
from tidemark_replica.storage.kafka.reader import BATCH_RECORDS
from tidemark_replica.storage.kafka.stop import TOO_MANY_ERRORS, BrokersAway
from tidemark_replica.storage.kafka.topics import Topic, Topics

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
MORE = Column("more", STRING)


@pytest.fixture(autouse=True)
def topics_are_looked_at_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "LOOK_SECONDS", 0.0)


def make_anew(kafka: Broker, topic: str) -> None:
    delete_topic(kafka, topic)
    until(lambda: topic not in kafka.admin().list_topics(timeout=10).topics)
    new_topic(kafka, name=topic)


def before_ends(patch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Does this when a table asks for the ends of its topic, once."""
    ends = Topics.ends

    def ends_of(topics: Topics, of: Topic) -> dict[int, int]:
        patch.setattr(Topics, "ends", ends)
        do()
        return ends(topics, of)

    patch.setattr(Topics, "ends", ends_of)


@pytest.mark.parametrize("answers", [True, False])
def test_a_topic_is_made_anew_before_its_end_is_known(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """A newer record was compacted, for one behind the place of the first table. The end of the new topic is before
    that: the row of the older record is not the successor's. The question for the end may fail once, too."""
    topic = compacted_topic(kafka)
    for vip in ("old", "newer"):
        produce(kafka, topic, {"id": 1, "vip": vip}, key=b"k")
    spec = spec_of(kafka, keyed(topic), max_bytes_per_tick=20)
    ingested(tmp_path, spec)

    def is_compacted() -> bool:
        produce(kafka, topic, {"id": 1, "vip": "newest"}, key=b"k")
        return all(record.offset() != 1 for record in consumed(kafka, topic, 1))

    def make_topic_anew() -> None:
        make_anew(kafka, topic)
        if not answers:
            raise BrokersAway("no answer")

    with Run(tmp_path, grown(spec)) as run:
        run.tick()
        assert run.source._successors.again["t.2"].missing(run.source._bound["t"]) == 1
        run.source._tables["t.2"].close()  # it forgets what it fetched ahead
        until(is_compacted)
        before_ends(monkeypatch, make_topic_anew)
        run.until(lambda: "t.2" in run.source.stop_reasons() or upper(tmp_path, "t.2"))
        assert run.source.stop_reasons()["t.2"].startswith("RecordsGone: ")
        assert "was created anew" in run.source.stop_reasons()["t.2"]


def test_a_table_that_has_begun_reads_for_others(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last successor has begun, the one before it follows, and the first table stops: the last one reads on."""
    topic, number = compacted_topic(kafka), [0]

    def write() -> None:
        number[0] += 1
        produce(kafka, topic, {"id": number[0] % 3, "vip": f"v{number[0]}"}, key=b"%d" % (number[0] % 3))

    for _ in range(20):
        write()
    spec = spec_of(kafka, keyed(topic), max_bytes_per_tick=200)
    ingested(tmp_path, spec)
    every = grown(grown(spec), MORE, 3)
    first, second, last = every.tables
    ingested(tmp_path, replace(spec, tables=(first, last)))
    compact(kafka, topic, write, 20)
    ingested(tmp_path, replace(spec, tables=(first, last)))

    def stop(*_: Any, **__: Any) -> None:
        raise TableStopped(TOO_MANY_ERRORS, "for this test")

    with Run(tmp_path, every) as run:
        monkeypatch.setattr(run.source._tables["t"], "read", stop)
        before_ends(monkeypatch, lambda: [write() for _ in range(30)])
        run.until(lambda: run.source._successors.again["t.2"].follows)
        assert run.source.stop_reasons().keys() == {"t"}
        assert run.source._successors.in_step() == {"t.3": ["t.2"]}
        run.until(lambda: run.is_at_end(last) and "t.2" in run.source._bound and run.is_at_end(second))
        assert run.source.stop_reasons().keys() == {"t"}
        assert [row[:4] for row in oks(tmp_path, "t.3")] == oks(tmp_path, "t.2")


def test_a_successor_says_that_a_stopped_table_holds_it(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until the first table is at the end of the topic, which that one does not reach any more."""
    topic = compacted_topic(kafka)

    def write() -> None:
        produce(kafka, topic, {"id": 1, "vip": "v"}, key=b"k")

    for _ in range(10):
        write()
    spec = spec_of(kafka, keyed(topic), max_bytes_per_tick=20)
    ingested(tmp_path, spec)
    compact(kafka, topic, write, 10)
    ingested(tmp_path, spec)

    def write_many() -> None:
        writer = producer(kafka)
        for i in range(2000):
            writer.produce(topic, b'{"id": 2}', f"{i}")
        assert writer.flush(60) == 0

    with Run(tmp_path, grown(spec)) as run:
        run.tick()
        assert run.source._successors.again["t.2"].missing(run.source._bound["t"]) > 0
        before_ends(monkeypatch, write_many)
        run.until(lambda: run.source._successors.again["t.2"].follows)
        delete_topic(kafka, topic)
        run.until(lambda: "t" in run.source.stop_reasons())
        run.tick(2)
        assert run.source.stop_reasons()["t"].startswith("TopicMissing: ")
        assert run.source.stop_reasons()["t.2"].startswith("TableBeforeStopped: table t cannot begin with its further")
        assert "(TopicMissing)" in run.source.stop_reasons()["t.2"]
        assert not run.source.retries(), "what was read again stays"


def test_malformed_records_count_once(kafka: Broker, tmp_path: Path) -> None:
    """Also where the successor begins anew to read."""
    topic = new_topic(kafka)
    produce(kafka, topic, *(value for i in range(10) for value in ({"id": i, "vip": "v"}, b"{bad")))
    spec = spec_of(kafka, table(topic, on_bad_record="deadLetter"), max_bytes_per_tick=100)
    ingested(tmp_path, spec)
    with Run(tmp_path, grown(spec)) as run:
        run.until(lambda: run.source.progress()["t.2"].malformed >= 4)
        assert "t.2" in run.source._successors.again
        run.one.recover()
        run.catch_up()
        assert run.source.progress()["t.2"].malformed == 10 == len(oks(tmp_path, "t_dead_letter.2"))
        produce(kafka, topic, b"{bad")
        run.catch_up()
        assert {name: report.malformed for name, report in run.source.progress().items()} == {"t": 1, "t.2": 11}


def test_records_that_others_take_are_few_at_a_time(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is an object in memory, however small its value is: they are counted, not their bytes alone."""
    topic = new_topic(kafka)
    spec = spec_of(kafka, table(topic))
    ingested(tmp_path, spec)
    ingested(tmp_path, grown(spec))
    writer = producer(kafka)
    for i in range(30_000):
        writer.produce(topic, b'{"id": %d}' % i)
    assert writer.flush(60) == 0
    monkeypatch.setattr(followed_topic, "KEPT_RECORDS", 5_000)
    monkeypatch.setattr(kafka_source, "READ_SECONDS", 60.0)
    with Run(tmp_path, grown(spec)) as run:
        at = [0]
        while at[-1] < 30_000:
            run.tick()
            at.append(run.source._bound["t"].offsets[0])
            assert run.source._bound["t.2"].offsets[0] == at[-1] <= at[-2] + 5_000 + BATCH_RECORDS
    assert [row[:2] for row in oks(tmp_path, "t.2")] == oks(tmp_path, "t")
    assert len(oks(tmp_path, "t")) == 30_000


def test_many_successors_take_turns(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison of rows takes long: a tick has few of them, and all successors begin in the end."""
    topic = new_topic(kafka)
    produce(kafka, topic, *({"id": i, "vip": "v"} for i in range(5)), key=b"k")
    first = keyed(topic)
    spec = spec_of(kafka, first)
    ingested(tmp_path, spec)
    later = (replace(first, name=f"t.{n}", columns=(*first.columns, VIP), added=("vip",)) for n in range(2, 10))
    compared, check_rows = list[str](), read_again.check_rows

    def compare(*given: Any) -> None:
        time.sleep(0.3)  # not a wait for anything: the time that a large table takes
        compared.append(given[-1])
        check_rows(*given)

    monkeypatch.setattr(successors, "check_rows", compare)
    monkeypatch.setattr(kafka_source, "READ_SECONDS", 0.9)
    with Run(tmp_path, replace(spec, tables=(first, *later))) as run:
        for _ in range(40):
            before = len(compared)
            run.tick()
            assert len(compared) - before <= 3
            if not run.source._successors.again:
                break
        assert sorted(compared) == [f"t.{n}" for n in range(2, 10)]
        run.catch_up()
        assert run.source._successors.in_step() == {"t": [f"t.{n}" for n in range(2, 10)]}
    assert {tuple(oks(tmp_path, f"t.{n}")) for n in range(2, 10)} == {(("k", 4, None, "v"),)}
