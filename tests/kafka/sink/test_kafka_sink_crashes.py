"""Publishers that are killed with SIGKILL, at each of their steps and at any moment, and brokers that are."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, broker
from tests.kafka.sink.sink_views import View, check_upserts, progress, publish, sink_of, topic_of
from tests.kafka.topics import SECONDS
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.stop import Overtaken

pytestmark = [pytest.mark.kafka, pytest.mark.broad]

LOOP = """
import os, signal, sys
from pathlib import Path
from tests.kafka.sink.sink_views import topic_of
from tidemark_persist import open_shard
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.session import ProducerSession
from tidemark_replica.sinks.kafka.stop import Overtaken

shard, sink, step = open_shard(sys.argv[1]), codec.decode(Path(sys.argv[2]).read_bytes(), KafkaSink), sys.argv[3]
if step:
    name, when = step.split()
    real = getattr(ProducerSession, name)
    def dying(session, *arguments):
        if when == "after":
            real(session, *arguments)
        if name == "_produce":
            session._producer.flush(30)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(ProducerSession, name, dying)
topic = topic_of(sink, 20)
print("begin", flush=True)
while True:
    upper = shard.refresh().upper
    try:
        topic.publish(shard, Time(upper - 1), WriterTerm(1))
    except (DestinationStopped, Overtaken) as error:
        print(error, file=sys.stderr, flush=True)
"""
STEPS = ["_init after", "_produce before", "_produce after", "_commit before", "_commit after"]


def publisher(folder: Path, view: View, sink: KafkaSink, step: str = "") -> subprocess.Popen[bytes]:
    """A process that publishes again and again. `step`: where it kills itself."""
    (folder / "sink").write_bytes(codec.encode(sink))
    return subprocess.Popen(
        [sys.executable, "-c", LOOP, view.location, str(folder / "sink"), step],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_crash_at_each_step_leaves_each_time_whole_and_once(kafka: Broker, tmp_path: Path) -> None:
    """Each step is met three times: without progress, by the claim; with a claim, by a piece of the snapshot; and with
    a complete snapshot, by a later time."""
    view, sink = View(tmp_path, keys=60), sink_of(kafka)
    view.step(50)
    for round in ("claim", "piece", "time"):
        if round == "time":
            publish(view, sink, view.step(6))
        for step in STEPS:
            with publisher(tmp_path, view, sink, step) as process:
                assert process.wait(SECONDS) == -signal.SIGKILL
            if (round, step) != ("claim", STEPS[0]):  # it has created the topics and written nothing
                check_upserts(kafka, sink, view)
            view.step(6)
        found = progress(kafka, sink)[-1]
        assert (found.get("pieces", 0) > 0, found.get("done", 0)) == {
            "claim": (True, 0),
            "piece": (True, 1),
            "time": (False, 0),
        }[round]
    publish(view, topic_of(sink), view.upper - 1)
    assert check_upserts(kafka, sink, view) == view.at[view.upper - 1]


@pytest.mark.parametrize("kills", [pytest.param(3), pytest.param(100, marks=pytest.mark.slow)])
def test_crash_sigkill_while_the_view_changes(tmp_path: Path, kills: int) -> None:
    """Every fifth time the broker is killed, too; at times two processes publish at once."""
    moments = random.Random(kills)
    with broker(tmp_path / "broker") as kafka:
        view, sink = View(tmp_path, seed=kills, keys=60), sink_of(kafka)
        view.step(50)
        for number in range(kills):
            both = [publisher(tmp_path, view, sink) for _ in range(1 + (number % 4 == 3))]
            for process in both:
                assert process.stdout is not None
                assert process.stdout.readline() == b"begin\n"
            for _ in range(moments.randrange(3, 10)):
                view.step(moments.randrange(8), moments.randrange(1, 3))
                time.sleep(moments.uniform(0.0, 0.4))  # not a wait for anything: the moment of death
            if number % 5 == 2:
                kafka.stop(0)
                kafka.start()
            for process in both:
                process.send_signal(signal.SIGKILL)
                assert process.wait() == -signal.SIGKILL
                process.stdout.close()  # type: ignore[union-attr]
        last = view.step(5)
        settled(view, sink, last)
        assert check_upserts(kafka, sink, view) == view.at[last]
        assert progress(kafka, sink)[-1]["time"] == last


def settled(view: View, sink: KafkaSink, last: int) -> None:
    """Publishes, as often as the broker needs after its death."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            publish(view, sink, last)
            return
        except (DestinationStopped, Overtaken):
            assert time.monotonic() < deadline
