"""Ingesters that are killed with SIGKILL while producers write, commit and abort."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.topics import COLUMNS, PLACE, Run, consumed, new_topic, producer, spec_of, transactions
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage.kafka.rows import BINARY

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
KEY = (Column("key", STRING),)

LOOP = """
import sys
from pathlib import Path
from tests.kafka.topics import Run
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.kafka import KafkaSource
run = Run(Path(sys.argv[1]), codec.decode(Path(sys.argv[2]).read_bytes(), KafkaSource))
while True:
    print("all before", run.at, flush=True)
    run.tick()
    run.one.compact_remap()
    for shard in run.one.shards():
        for work in shard.maintenance_due():
            shard.run_maintenance(work)
"""


class Died(Exception):
    pass


@pytest.mark.parametrize("appends", [0, 1, 2])
def test_crash_between_the_writes_of_a_tick(kafka: Broker, tmp_path: Path, appends: int) -> None:
    """It dies with files that are staged and not named, after the mint, or with one of two tables appended. A minted
    binding needs no broker."""
    topic = new_topic(kafka)
    spec = spec_of(kafka, *(KafkaTable(name, topic, "json", COLUMNS, PLACE) for name in "ab"))
    with Run(tmp_path, spec) as run:
        run.catch_up()
        writer = producer(kafka)
        for i in range(10):
            writer.produce(topic, json.dumps({"id": i}), partition=0)
        writer.flush()
        append, left = run.one._append, [appends]

        def dying(*arguments: Any) -> None:
            if has_files(run):
                if left[0] == 0:
                    raise Died
                left[0] -= 1
            append(*arguments)

        run.one._append = dying  # type: ignore[method-assign, assignment]
        with pytest.raises(Died):
            run.tick(100)
    away = replace(spec, brokers=("127.0.0.1:9",))
    with Run(tmp_path, away if appends else spec) as run:
        if not appends:
            run.catch_up()
    assert oks(tmp_path, "a") == oks(tmp_path, "b") == [(i, None, 0, i) for i in range(10)]


def has_files(run: Run) -> bool:
    """Whether both tables have staged files that are not appended yet."""
    return all(any((run.root / name).glob("*.parquet")) for name in "ab")


@pytest.mark.parametrize("kills", [pytest.param(3), pytest.param(40, marks=pytest.mark.slow)])
def test_crash_sigkill_while_producers_write(kafka: Broker, tmp_path: Path, kills: int) -> None:
    moments, topic = random.Random(kills), new_topic(kafka, 3)
    tables = (
        KafkaTable("t", topic, "json", COLUMNS, PLACE, on_bad_record="deadLetter"),
        KafkaTable("v", topic, "bytes", (Column("v", BINARY),), PLACE),
        replace(KafkaTable("k", topic, "json", COLUMNS, PLACE), envelope="upsert", key_format="text", key_columns=KEY),
    )
    spec = spec_of(kafka, *tables, max_bytes_per_tick=2_000)
    (tmp_path / "spec").write_bytes(codec.encode(spec))
    writer = transactions(kafka, topic)
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path), str(tmp_path / "spec")],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        for _ in range(moments.randrange(2, 8)):
            assert process.stdout.readline().startswith(b"all before")
            writer.begin_transaction()
            for i in range(moments.randrange(1, 40)):
                value = moments.choice([json.dumps({"id": i}), "{bad", None])
                writer.produce(topic, value, str(i), partition=i % 3)
            if moments.random() < 0.4:
                writer.abort_transaction(30)
            else:
                writer.commit_transaction(30)
        time.sleep(moments.uniform(0.0, 0.1))  # not a wait for anything: the moment of death
        process.send_signal(signal.SIGKILL)
        process.wait()
    with Run(tmp_path, spec, term=2) as run:
        run.catch_up()
    records = consumed(kafka, topic, 3)
    places = sorted(((record.value(), record.partition(), record.offset()) for record in records), key=repr)
    assert places == oks(tmp_path, "v")
    good = [(p, o) for value, p, o in places if value != b"{bad"]
    assert sorted(row[2:] for row in oks(tmp_path, "t")) == sorted(good)
    letters: list[Any] = oks(tmp_path, "t_dead_letter")
    assert sorted(row[:2] for row in letters) == sorted((p, o) for value, p, o in places if value == b"{bad")
    last = {record.key().decode(): record for record in records}
    rows = [
        (key, json.loads(record.value())["id"], None, record.partition(), record.offset())
        for key, record in last.items()
        if record.value() not in (None, b"{bad")
    ]
    assert sorted(rows, key=repr) == oks(tmp_path, "k")
    assert len(errors(tmp_path, "k")) == sum(record.value() == b"{bad" for record in last.values())
