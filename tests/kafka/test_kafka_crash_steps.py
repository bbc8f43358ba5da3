"""A process dies at each step of the ticks in which a topic's records are taken that were there before the table."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.test_kafka_crashes import KEY
from tests.kafka.topics import COLUMNS, PLACE, Run, consumed, new_topic, produce, spec_of
from tests.storage.dying_steps import dies
from tests.storage.ingestion_samples import oks
from tidemark_protocol.plan.kafka import KafkaTable

pytestmark = [pytest.mark.kafka, pytest.mark.broad]

PARTS = 4
"""Each takes every fourth step."""


@pytest.mark.parametrize(
    ("first", "every"),
    [pytest.param(9, 1000), *(pytest.param(n, PARTS, marks=pytest.mark.slow) for n in range(PARTS))],
)
def test_crash_at_each_step_of_the_first_records(kafka: Broker, tmp_path: Path, first: int, every: int) -> None:
    """All records, and the newest ones by key. More come before another process goes on."""
    topic, died = new_topic(kafka, 2), 0
    tables = (
        KafkaTable("t", topic, "json", COLUMNS, PLACE),
        replace(KafkaTable("k", topic, "json", COLUMNS, PLACE), envelope="upsert", key_format="text", key_columns=KEY),
    )
    spec = spec_of(kafka, *tables, max_bytes_per_tick=500)

    def write(begin: int) -> None:
        for i in range(begin, begin + 20):
            produce(kafka, topic, {"id": i, "name": f"{i}"}, partition=i % 2, key=f"{i % 8}".encode())

    write(0)
    for step in count(first, every):
        root = tmp_path / f"{step}"
        root.mkdir()
        died_here = dies("kafka", root, spec, step)
        write(20 * (step + 1))
        with Run(root, spec) as run:
            run.catch_up()
        records: list[Any] = consumed(kafka, topic, 2)
        assert sorted(row[2:] for row in oks(root, "t")) == sorted((r.partition(), r.offset()) for r in records)
        last = {r.key().decode(): (r.partition(), r.offset()) for r in records}
        assert {row[0]: row[3:] for row in oks(root, "k")} == last
        if not died_here or every == 1000:
            break
        died += 1
    assert died_here if every == 1000 else died >= 20 // PARTS
