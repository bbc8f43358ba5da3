"""The Kafka sink against a real broker: a consumer of committed records sees the view's times, each once."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.sink.sink_views import (
    SCHEMA,
    UID,
    View,
    check_upserts,
    progress,
    publish,
    sink_of,
    topic_of,
    transactions,
)
from tests.kafka.topics import SECONDS, delete_topic, new_topic, produce, producer
from tidemark_persist import DIFF, create_or_open
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.destinations.destination import DestinationStopped, SinkViewInError
from tidemark_replica.sinks.kafka import changes, publication
from tidemark_replica.sinks.kafka.changes import at_unique_times, read_changes
from tidemark_replica.sinks.kafka.envelopes import Envelope
from tidemark_replica.sinks.kafka.publication import KafkaTopic
from tidemark_replica.sinks.kafka.session import ProducerSession
from tidemark_replica.sinks.kafka.stop import Overtaken

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_oracle_the_fold_of_the_topic_is_the_view_at_each_time(kafka: Broker, tmp_path: Path, seed: int) -> None:
    view, sink = View(tmp_path, seed), sink_of(kafka)
    one, other = topic_of(sink), topic_of(sink)
    publish(view, one, view.step(10, 3))
    for _ in range(5):
        last = view.step(view.random.randrange(8), view.random.randrange(1, 4))
        publish(view, view.random.choice([one, other]), last)
        assert check_upserts(kafka, sink, view) == view.at[last]
    assert view.at[last]


def test_each_time_with_changes_is_one_transaction(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.append((1, "a", 1, 0, 1), (2, "b", 2, 0, 1)))
    view.append((1, "a", 1, 1, -1), (1, "c", 3, 1, 1), (3, "d", 4, 3, 1), (2, "b", 2, 4, -1), times=5)
    reached = publish(view, sink, 5)
    assert (reached.time, reached.checked) == (4, 5)
    assert [(each["time"], each["term"], each["view"]) for each in progress(kafka, sink)] == [
        (time, 1, f"{UID}/view") for time in (0, 1, 3, 4)
    ]
    found = {
        time: sorted((json.loads(r.key())["k"], r.value(), dict(r.headers()).get("tidemark.snapshot")) for r in records)
        for time, records in transactions(kafka, sink).items()
    }
    assert found == {
        0: [(1, b'{"k":1,"name":"a","n":1}', b"true"), (2, b'{"k":2,"name":"b","n":2}', b"true")],
        1: [(1, b'{"k":1,"name":"c","n":3}', None)],
        3: [(3, b'{"k":3,"name":"d","n":4}', None)],
        4: [(2, None, None)],
    }


def test_the_time_of_its_contents_is_told_and_of_no_others(kafka: Broker, tmp_path: Path) -> None:
    """Nothing is created by asking, and no producer is fenced."""
    view, sink = View(tmp_path), sink_of(kafka)
    assert topic_of(sink).progress_time("u1") is None
    one = topic_of(sink)
    for _ in range(2):
        last = view.step(5)
        publish(view, one, last)
        assert topic_of(sink).progress_time("u1") == last
    assert topic_of(sink).progress_time("u1@7") is None
    assert topic_of(sink, uid="another").progress_time("u1") is None


def test_debezium_events_have_both_rows_and_a_tombstone_follows_a_deletion(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka, envelope="debezium")
    publish(view, sink, view.append((1, "a", 1, 0, 1)))
    publish(view, sink, view.append((1, "a", 1, 1, -1), (1, "b", 1, 1, 1), (2, "x", None, 1, 1)))
    publish(view, sink, view.append((1, "b", 1, 2, -1)))
    events = [record for _, records in sorted(transactions(kafka, sink).items()) for record in records]
    one = [r.value() and json.loads(r.value()) for r in events if b"1" in r.key()]
    a, b = {"k": 1, "name": "a", "n": 1}, {"k": 1, "name": "b", "n": 1}
    assert one == [
        {"before": None, "after": a, "op": "r", "ts_ms": 0},
        {"before": a, "after": b, "op": "u", "ts_ms": 1},
        {"before": b, "after": None, "op": "d", "ts_ms": 2},
        None,
    ]
    [two] = [json.loads(r.value()) for r in transactions(kafka, sink)[1] if b"2" in r.key()]
    assert two == {"before": None, "after": {"k": 2, "name": "x", "n": None}, "op": "c", "ts_ms": 1}


def test_split_a_snapshot_in_pieces_is_marked_until_its_last(kafka: Broker, tmp_path: Path, monkeypatch: Any) -> None:
    """The process dies in between; the next one goes on at the same time, though the view has moved on."""
    view, sink = View(tmp_path, keys=200), sink_of(kafka)
    first = view.step(150)
    send, left = ProducerSession.send, [3]

    def dying(*arguments: Any, **named: Any) -> None:
        if not left[0]:
            raise OSError
        left[0] -= 1
        send(*arguments, **named)

    monkeypatch.setattr(ProducerSession, "send", dying)
    with pytest.raises(OSError):
        publish(view, topic_of(sink, 40), first)
    monkeypatch.undo()
    assert [(p["pieces"], p.get("done", 0)) for p in progress(kafka, sink)] == [(4, 0), (4, 1), (4, 2)]
    check_upserts(kafka, sink, view)
    last = view.step(20)
    publish(view, sink, last)
    assert [p["time"] for p in progress(kafka, sink)] == [first] * 5 + [last]
    assert check_upserts(kafka, sink, view) == view.at[last]


def test_split_many_updates_are_read_in_parts(kafka: Broker, tmp_path: Path, monkeypatch: Any) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.step(5))
    last = view.step(9, 20)
    for module in (changes, publication):
        monkeypatch.setattr(module, "ROWS_MAX", 40)
    publish(view, sink, last)
    assert check_upserts(kafka, sink, view) == view.at[last]
    for module in (changes, publication):
        monkeypatch.setattr(module, "ROWS_MAX", 3)
    last = view.step(9)
    assert stopped(view, sink, last) == "TimeTooLarge"
    monkeypatch.undo()
    monkeypatch.setattr(changes, "MEMORY_BYTES_MAX", 100)
    assert stopped(view, sink, last) == "TimeTooLarge"
    assert len(progress(kafka, sink)) == 21


def test_a_view_in_error_holds_the_topic_until_it_is_corrected(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.append((1, "a", 1, 0, 1)))
    view.append((2, "b", 2, 1, 1), (None, None, None, 2, 1, "e"), (3, "c", 3, 2, 1), times=3)
    with pytest.raises(SinkViewInError):
        publish(view, sink, 3)
    assert [each["time"] for each in progress(kafka, sink)] == [0, 1]
    view.append((None, None, None, 4, -1, "e"), (4, "d", 4, 4, 1), (5, "e", 5, 5, 1), times=2)
    publish(view, sink, 5)
    found = {t: sorted(json.loads(r.key())["k"] for r in rs) for t, rs in transactions(kafka, sink).items()}
    assert found == {0: [1], 1: [2], 4: [3, 4], 5: [5]}
    broken = View(tmp_path / "broken")
    other = sink_of(kafka)
    with pytest.raises(SinkViewInError):
        publish(broken, other, broken.append((1, "a", 1, 0, 1), (None, None, None, 0, 1, "e")))
    assert progress(kafka, other) == []


@pytest.mark.parametrize("bytes_max", [0, changes.BYTES_MAX])
def test_times_at_which_keys_are_not_unique_are_passed_over(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    """`bytes_max`: with 0 each time is read alone."""
    monkeypatch.setattr(publication, "BYTES_MAX", bytes_max)
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.append((1, "a", 1, 0, 1), (2, "b", 1, 0, 1)))
    view.append((3, "c", 3, 1, 1), (1, "z", 1, 2, 1), (4, "d", 4, 2, 1), times=2)
    assert stopped(view, sink, 2) == "KeyNotUnique"
    assert [each["time"] for each in progress(kafka, sink)] == [0, 1]
    assert stopped(view, sink, view.append((5, "e", 5, 3, 1))) == "KeyNotUnique"
    view.append((1, "a", 1, 4, -1), (6, "f", 6, 5, 1), times=2)
    publish(view, sink, 5)
    found = {t: sorted(json.loads(r.key())["k"] for r in rs) for t, rs in transactions(kafka, sink).items()}
    assert found == {0: [1, 2], 1: [3], 4: [1, 4, 5], 5: [6]}
    twice, other = View(tmp_path / "twice"), sink_of(kafka)
    assert stopped(twice, other, twice.append((1, "a", 1, 0, 2))) == "KeyNotUnique"
    assert stopped(twice, topic_of(other, 1), twice.append((2, "a", 1, 1, 1), (2, "b", 1, 1, 1))) == "KeyNotUnique"
    assert transactions(kafka, other) == {}


@pytest.mark.parametrize("seed", range(20))
def test_oracle_changes_lead_from_one_unique_time_to_the_next(tmp_path: Path, seed: int) -> None:
    """Random rows of few keys: at each unique time the changes so far give the rows, each key changes once, and the
    last unique time is named."""
    view, draw = View(tmp_path), random.Random(seed)
    rows: set[tuple[int, str, int]] = {(k, "a", 0) for k in range(2)}
    reached = view.append(*((*row, 0, 1) for row in sorted(rows)))
    last, at = draw.randrange(3, 15), {0: frozenset(rows)}
    updates: list[tuple[Any, ...]] = []
    for time in range(1, last + 1):
        for row in draw.sample([(k, name, 0) for k in range(4) for name in "ab"], draw.randrange(3)):
            updates.append((*row, time, -1 if row in rows else 1))
            rows ^= {row}
        at[time] = frozenset(rows)
    view.append(*updates, times=last)
    unique = [time for time, now in at.items() if len({row[0] for row in now}) == len(now)]
    read = read_changes(view.shard, view.shard.listen(1, last + 1), Time(last + 1))
    found = at_unique_times(view.shard, Time(reached), read, Envelope("upsert", ("k",)))
    assert (found.good, found.not_unique is None) == (unique[-1], unique[-1] == last)
    if found.not_unique is not None:
        assert found.not_unique == unique[-1] + 1
    now, by_time = set(at[0]), dict(found.by_time())
    assert set(by_time) <= set(unique)
    for time in unique[1:]:
        for diff in (-1, 1):
            changed = [row for row in by_time[time].to_pylist() if row[DIFF] == diff] if time in by_time else []
            assert len({row["k"] for row in changed}) == len(changed)
            now ^= {(row["k"], row["name"], row["n"]) for row in changed}
        assert now == at[time]


def test_a_key_may_leave_and_come_again(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.append((1, "a", 1, 0, 1)))
    view.append(
        (1, "a", 1, 1, -1), (1, "a", 1, 2, 1), (1, "a", 1, 3, -1), (2, "b", 1, 2, 1), (2, "b", 1, 3, -1), times=3
    )
    publish(view, sink, 3)
    publish(view, sink, view.append((2, "c", 1, 4, 1)))
    found = {t: sorted((r.key(), r.value() is None) for r in rs) for t, rs in transactions(kafka, sink).items()}
    one, two = b'{"k":1}', b'{"k":2}'
    assert found == {
        0: [(one, False)],
        1: [(one, True)],
        2: [(one, False), (two, False)],
        3: [(one, True), (two, True)],
        4: [(two, False)],
    }


def test_a_later_revision_is_not_overtaken(kafka: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    old = topic_of(sink)
    publish(view, old, view.step(5), term=1)
    new = topic_of(sink)
    publish(view, new, view.step(5), term=2)
    assert stopped(view, old, view.step(5), term=1) == "WrittenByLater"
    publish(view, new, view.upper - 1, term=2)  # the refused one has not fenced it
    check_upserts(kafka, sink, view)
    assert not caplog.records  # a turn of another replica is no event


def test_two_publishers_at_once_write_each_time_once(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.step(5))
    last = view.step(6, 6)
    failures: list[Exception] = []

    def writes(one: KafkaTopic) -> None:
        for time in range(1, last + 1):
            try:
                publish(view, one, time)
            except Overtaken:
                continue
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=writes, args=(topic_of(sink),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert not failures
    publish(view, sink, last)
    assert check_upserts(kafka, sink, view) == view.at[last]


def test_topics_that_are_not_the_views_are_refused(kafka: Broker, tmp_path: Path) -> None:
    view = View(tmp_path)
    last = view.step(5)
    assert stopped(view, sink_of(kafka, partitions=0), last) == "TopicMissing"
    foreign = new_topic(kafka, 2)
    produce(kafka, foreign, {"x": 1})
    assert stopped(view, sink_of(kafka, foreign), last) == "TopicNotEmpty"
    sink = sink_of(kafka)
    publish(view, sink, last)
    assert stopped(view, topic_of(sink, uid="1111"), last) == "TopicTaken"
    one = topic_of(sink)
    publish(view, one, last)
    delete_topic(kafka, sink.topic)
    with pytest.raises((DestinationStopped, Overtaken)):
        publish(view, one, view.step(5))
    new_topic(kafka, 2, sink.topic)
    assert stopped(view, sink, view.upper - 1) == "TopicReplaced"
    delete_topic(kafka, sink.progress_topic)
    publish(view, sink, view.upper - 1)
    assert check_upserts(kafka, sink, view) == view.at[view.upper - 1]
    delete_topic(kafka, sink.progress_topic)
    assert stopped(view, sink, view.step(3)) == "TopicNotEmpty"


def test_a_row_that_is_larger_than_the_topic_takes_leaves_the_times_before_it(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka, 2, max_message_bytes="2000")
    view, sink = View(tmp_path), sink_of(kafka, topic)
    letters = "".join(view.random.choices("abcdefghijklmnop", k=9000))
    publish(view, sink, view.append((1, "a", 1, 0, 1)))
    view.append((2, "b", 2, 1, 1), (3, letters, 3, 2, 1), (4, "d", 4, 2, 1), times=2)
    assert stopped(view, sink, 2) == "RecordTooLarge"
    assert sorted(transactions(kafka, sink)) == [0, 1]
    assert [each["time"] for each in progress(kafka, sink)] == [0, 1]


def test_another_key_or_envelope_needs_another_topic(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.step(5))
    last = view.step(5)
    assert stopped(view, replace(sink, key=("k", "name")), last) == "SinkChanged"
    assert stopped(view, replace(sink, envelope="debezium"), last) == "SinkChanged"
    assert stopped(view, replace(sink, progress_topic=f"{sink.topic}-other"), last) == "TopicNotEmpty"
    assert stopped(view, replace(sink_of(kafka), key=("k", "x")), last) == "KeyUnfit"
    publish(view, sink, last)
    assert check_upserts(kafka, sink, view) == view.at[last]


def test_history_that_is_compacted_stops_it(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.step(5))
    view.step(3, 3)
    view.shard.downgrade_since(2)
    assert stopped(view, sink, 3) == "HistoryGone"
    other = create_or_open(str(tmp_path / "v2"), SCHEMA, shard_id="u2")
    view.shard = other
    other.compare_and_append(None, expected_upper=0, new_upper=9, term=1)
    assert stopped(view, sink, 8) == "ViewReplaced"


def test_an_idle_view_moves_the_progress_once_a_minute(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.append((1, "a", 1, 0, 1)))
    view.append(times=100_000)
    assert publish(view, sink, 59_999).time == 0
    assert publish(view, sink, 60_000).time == 60_000
    assert [each["time"] for each in progress(kafka, sink)] == [0, 60_000]


def test_another_sinks_open_transaction_on_the_progress_topic_is_waited_for(kafka: Broker, tmp_path: Path) -> None:
    """Its record is before the committed progress, which is not visible until it ends: nothing is written twice."""
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.step(5))
    other = producer(kafka, **{"transactional.id": f"{sink.topic}-other"})
    other.init_transactions(SECONDS)
    other.begin_transaction()
    other.produce(sink.progress_topic, b"{}", b"another topic")
    other.flush(SECONDS)
    one = topic_of(sink)
    done = threading.Event()
    last = view.step(5)

    def run() -> None:
        publish(view, one, last)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert not done.wait(2)
    other.abort_transaction(SECONDS)
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert done.is_set()
    check_upserts(kafka, sink, view)


def stopped(view: View, to: Any, time: int, term: int = 1) -> str:
    """The reason for which a publication stops."""
    with pytest.raises(DestinationStopped) as raised:
        publish(view, to, time, term)
    return raised.value.reason
