"""The speed at which a view is written to a Kafka topic.

    python -m bench.sinks [--rows 500000] [--seconds 60] [--json] [--quick]

A view's shard gets changes of a table with a unique key, in times of 10,000 updates each, and is written to a topic of
a broker on this machine, whose JVM shares its cores. `kafka_updates_per_s`: updates of the shard over the seconds that
their publication takes. `kafka_snapshot_rows_per_s`: of the first contents. `kafka_small_p50_ms`: a time of ten
updates, with the session open. `kafka_session_p50_ms`: the same with a new session, as after another replica's turn.
`kafka_avro_updates_per_s`: as the first, to a topic of Avro with a registry of schemas on this machine.
`kafka_end_to_end_...`: from a topic through a view to another topic, by the whole system
(bench/parts/kafka_end_to_end.py).
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness.answers import WrongAnswer
from bench.harness.clock import p50
from bench.harness.context import bench_parser, context, load, progress, report
from bench.parts.kafka_end_to_end import figures as end_to_end_figures
from tests.kafka.broker import broker
from tests.kafka.topics import consumed
from tests.schema_registry.registry import registry
from tidemark_persist import DIFF, TIME, Shard, create_or_open
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.kafka.publication import KafkaTopic

PER_TIME = 10_000
SMALL, TURNS = 10, 15


class View:
    """A shard with a unique key; each change gives a key another price."""

    def __init__(self, folder: Path) -> None:
        self.schema = _rows(np.arange(1), 0).schema
        self.shard: Shard = create_or_open(str(folder / "shard"), self.schema, shard_id="v")
        self.prices: dict[int, int] = {}
        self.upper = 0

    def change(self, ids: np.ndarray) -> int:
        """The keys get the time as their price; returns how many updates that is."""
        old = np.array([id for id in ids if int(id) in self.prices], np.int64)
        parts = [_updates(_rows(ids, self.upper), self.upper, 1)]
        if len(old):
            before = np.array([self.prices[int(id)] for id in old])
            parts.append(_updates(_rows(old, before), self.upper, -1))
        updates = pa.concat_tables(parts)
        self.shard.compare_and_append(updates, expected_upper=self.upper, new_upper=self.upper + 1, term=1)
        self.prices |= dict.fromkeys(map(int, ids), self.upper)
        self.upper += 1
        return int(updates.num_rows)


def _rows(ids: np.ndarray, price: Any) -> pa.Table:
    texts = pa.array(ids * 7919 % 1_000_003).cast(pa.string())
    return pa.table({"id": ids, "customer": ids % 9973, "price": np.full(len(ids), price), "comment": texts})


def _updates(rows: pa.Table, time: int, diff: int) -> pa.Table:
    count = rows.num_rows
    return rows.append_column(TIME, pa.array(np.full(count, time))).append_column(DIFF, pa.array(np.full(count, diff)))


def figures(rows: int, folder: Path) -> dict[str, Any]:
    with broker(folder / "broker") as kafka, registry() as schemas:
        view = View(folder)
        sink = KafkaSink((kafka.address,), "v", ("id",), "b.s.v", "v-progress", partitions=4)
        topic = KafkaTopic("0/v", sink, lambda _: {})
        avro = KafkaTopic("0/v", replace(sink, topic="a", format="avro", registry=schemas.url), lambda _: {})

        def published(to: KafkaTopic) -> float:
            began = time.perf_counter()
            to.publish(view.shard, Time(view.upper - 1), WriterTerm(1))
            return time.perf_counter() - began

        progress(f"{rows:,} rows")
        view.change(np.arange(rows))
        first = published(topic)
        published(avro)
        random = np.random.default_rng(7)
        updates = sum(view.change(random.choice(rows, PER_TIME // 2, replace=False)) for _ in range(rows // PER_TIME))
        progress(f"{updates:,} updates")
        seconds = published(topic)
        avro_seconds = published(avro)
        avro.close()
        small, sessions = [], []
        for _ in range(TURNS):
            view.change(random.choice(rows, SMALL // 2, replace=False))
            small.append(published(topic))
        for _ in range(TURNS):
            view.change(random.choice(rows, SMALL // 2, replace=False))
            sessions.append(published(KafkaTopic("0/v", sink, lambda _: {})))
        for name in ("v", "a"):
            found = len({record.key() for record in consumed(kafka, name, 4)})
            if found != rows:
                raise WrongAnswer(f"topic {name} has {found:,} keys; the view {rows:,}")
        return {
            "kafka_snapshot_rows_per_s": round(rows / first),
            "kafka_updates_per_s": round(updates / seconds),
            "kafka_avro_updates_per_s": round(updates / avro_seconds),
            "kafka_small_p50_ms": round(p50(small) * 1e3),
            "kafka_session_p50_ms": round(p50(sessions) * 1e3),
        }


def main() -> None:
    """Measures and prints."""
    parser = bench_parser(__doc__, "50,000 rows")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of records from end to end (%(default)s)")
    arguments = parser.parse_args()
    rows = 50_000 if arguments.quick else arguments.rows
    seconds = 5.0 if arguments.quick else arguments.seconds
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        results = figures(rows, Path(folder)) | end_to_end_figures(seconds, Path(folder))
    report("sinks", results, {**context(), "rows": rows, "seconds": seconds, "load": before}, arguments.json)


if __name__ == "__main__":
    main()
