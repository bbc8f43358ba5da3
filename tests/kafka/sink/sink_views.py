"""Views with a unique key for the tests of the Kafka sink, and what a consumer makes of their topics."""

from __future__ import annotations

import json
import random
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.kafka.broker import Broker
from tests.kafka.topics import consumed
from tidemark_persist import DIFF, ERROR, TIME, Shard, create_or_open
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.destinations.destination import Reached
from tidemark_replica.sinks.kafka.publication import PIECE_ROWS, KafkaTopic

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string()), pa.field("n", pa.int32())])
FIELDS = pa.schema([*SCHEMA, pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64()), pa.field(ERROR, pa.string())])
UID = "0000"
Rows = dict[int, dict[str, Any]]


class View:
    """A shard, and what it holds at each time, by key."""

    def __init__(self, folder: Path, seed: int = 0, keys: int = 30, shard_id: str = "u1") -> None:
        self.location = str(folder / "shard")
        self.shard: Shard = create_or_open(self.location, SCHEMA, shard_id=shard_id)
        self.random, self.keys = random.Random(seed), keys
        self.at: dict[int, Rows] = {-1: {}}
        self.upper = int(self.shard.refresh().upper)

    def append(self, *updates: tuple[Any, ...], times: int = 1, term: int = 1) -> int:
        """Updates (k, name, n, time, diff) or with an error after them; returns the last time."""
        rows = [(*update, None)[: len(FIELDS)] for update in updates]
        columns = zip(*rows, strict=True) if rows else ((),) * len(FIELDS)
        table = pa.table([pa.array(list(c), f.type) for c, f in zip(columns, FIELDS, strict=True)], FIELDS)
        self.upper += times
        self.shard.compare_and_append(
            table if rows else None, expected_upper=self.upper - times, new_upper=self.upper, term=term
        )
        return self.upper - 1

    def step(self, changes: int, times: int = 1) -> int:
        """Random changes at each of some times; returns the last of them."""
        now, updates = dict(self.at[self.upper - 1]), []
        for time in range(self.upper, self.upper + times):
            for k in self.random.sample(range(self.keys), min(changes, self.keys)):
                old = now.pop(k, None)
                if old is not None:
                    updates.append((*old.values(), time, -1))
                if old is None or self.random.random() < 0.6:
                    name = self.random.choice([None, "", 'q"\\\n', f"name {k}", "ü"])
                    now[k] = {"k": k, "name": name, "n": self.random.choice([None, time, -time])}
                    updates.append((*now[k].values(), time, 1))
            self.at[time] = dict(now)
        return self.append(*updates, times=times)


def sink_of(kafka: Broker, topic: str = "", **options: Any) -> KafkaSink:
    topic = topic or f"v-{uuid.uuid4().hex[:10]}"
    given = {"partitions": 2, **options}
    return KafkaSink((kafka.address,), topic, ("k",), "shop.flow.view", f"{topic}-progress", **given)


def topic_of(sink: KafkaSink, piece_rows: int = PIECE_ROWS, uid: str = UID) -> KafkaTopic:
    """A publisher without a session, as a new process has it."""
    return KafkaTopic(f"{uid}/view", sink, lambda _: {}, piece_rows)


def publish(view: View, to: KafkaTopic | KafkaSink, time: int, term: int = 1) -> Reached:
    one = topic_of(to) if isinstance(to, KafkaSink) else to
    return one.publish(view.shard, Time(time), WriterTerm(term))


def progress(kafka: Broker, sink: KafkaSink) -> list[dict[str, Any]]:
    """Every committed progress record, in order."""
    return [json.loads(record.value()) for record in consumed(kafka, sink.progress_topic, 1)]


def transactions(kafka: Broker, sink: KafkaSink) -> dict[int, list[Any]]:
    """The committed records by the time in their headers, in their partitions' order."""
    found: dict[int, list[Any]] = defaultdict(list)
    for record in consumed(kafka, sink.topic, 2):
        found[int(dict(record.headers())["tidemark.time"])].append(record)
    return found


def check_upserts(
    kafka: Broker, sink: KafkaSink, view: View, decode: Callable[[bytes], dict[str, Any]] = json.loads
) -> Rows:
    """The contents of the topic at its progress. Each time's records, applied to those before, give the view's rows at
    this time, and no key comes twice in a time, nor once without a change."""
    told = progress(kafka, sink)
    times = [each["time"] for each in told]
    assert times == sorted(times)
    complete = [each["time"] for each in told if each.get("done", 0) >= each.get("pieces", 0)]
    assert len(set(complete)) == len(complete)
    by_time, rows = transactions(kafka, sink), Rows()
    assert set(by_time) <= set(times)
    for time in sorted({*times}):
        keys = [decode(record.key())["k"] for record in by_time[time]]
        assert len(set(keys)) == len(keys), f"time {time} is there twice"
        for key, record in zip(keys, by_time[time], strict=True):
            if record.value() is None:
                assert rows.pop(key, None) is not None
            else:
                row = decode(record.value())
                assert rows.get(key) != row
                rows[key] = row
        if time in complete:
            assert rows == view.at[time]
    return rows
