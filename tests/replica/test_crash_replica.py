"""A replica killed at the worst moments: its view has neither gap nor duplicate, and nothing of it is left over."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.directory_listing import matching, text_of
from tests.replica.plans import copies, shard
from tests.replica.process import ReplicaProcess, ScriptedClient, descendants, epochs, living, wait_until
from tests.replica.tables import Table, Update, contents, persisted
from tests.waiting import BOUND
from tidemark_persist import ShardNotFound, open_shard
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.commands import AllowWrites, CreateDataflow, InstanceConfig, Schedule
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.spark.priority import SPARK_NICENESS

pytestmark = pytest.mark.spark

TICK = 10
FIRST = 5
# at the table afterwards, which is the longer the longer the replica took
LOOKS = 200
EPOCHS = epochs()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[ReplicaProcess]:
    process = ReplicaProcess(tmp_path, "--cores", "2", "--driver-memory", "1g")
    yield process
    process.close()


class Ticker:
    """Appends changes to a table, tick after tick, from a thread, until it is stopped."""

    def __init__(self, table: Table, seed: int) -> None:
        self.table, self._rng = table, random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            self.table.append(self.table.upper + TICK, *self._changes(self.table.upper))

    def _changes(self, tick: int) -> list[Update]:
        alive = sorted(self.table.at(tick), key=repr)
        gone: list[Update] = [(self._rng.choice(alive), tick + 3, -1)] if alive and self._rng.random() < 0.5 else []
        return [((self._rng.randrange(5), self._rng.choice(["a", None])), tick + 1, 1), *gone]


def upper_of(view: ShardMetadata) -> int:
    try:
        return open_shard(view.location).state().upper
    except ShardNotFound:
        return 0


def begin(replica: ReplicaProcess, client: ScriptedClient, table: Table, view: ShardMetadata) -> None:
    """The commands of a controller to a new process: the view as of the latest time that it can go on from."""
    as_of = max(FIRST, upper_of(view) - 1)
    dataflow = copies("view", as_of, source=table.metadata, view=view)
    id = dataflow.export_ids[0]
    commands = (CreateDataflow(dataflow), Schedule(id), AllowWrites(id, WriterTerm(1)))
    client.greet(next(EPOCHS), InstanceConfig("default", str(replica.home)), *commands)


def step_runs(replica: ReplicaProcess, view: ShardMetadata) -> bool:
    return bool(matching(replica.home / "scratch", "*/dataflows/*/steps/*"))


def a_file_is_staged(replica: ReplicaProcess, view: ShardMetadata) -> bool:
    """A data file beside the shard that the log may not name yet."""
    known = set(view_files(view))
    wait_until(lambda: set(view_files(view)) - known)
    return True


def view_files(view: ShardMetadata) -> list[str]:
    return [path.name for path in Path(view.location).glob("*.parquet")]


def test_crash_at_any_moment_leaves_neither_gap_nor_duplicate(replica: ReplicaProcess, tmp_path: Path) -> None:
    """SIGKILL while a step runs, and between the writing of a file and its commit; then it catches up."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(TICK, ((1, "a"), 3, 2))
    ticker = Ticker(table, seed=1)
    moments: list[Callable[[ReplicaProcess, ShardMetadata], bool]] = [step_runs, a_file_is_staged]
    for moment in moments:
        client = ScriptedClient(replica.address)
        begin(replica, client, table, view)
        wait_until(lambda moment=moment: moment(replica, view), pause=0.001)
        family = descendants(replica.process.pid)
        replica.kill()
        client.close()
        wait_until(lambda family=family: not living(family))
        replica.start()
    ticker.stop()
    client = ScriptedClient(replica.address)
    begin(replica, client, table, view)
    wait_until(lambda: upper_of(view) == table.upper)

    since = open_shard(view.location).state().since
    times = range(since, table.upper, TICK // 5)
    for time in times[:: 1 + len(times) // LOOKS]:
        assert persisted(view.location, time) == contents(table.updates, time), f"at {time}"
    client.close()


def jvms(replica: ReplicaProcess) -> list[int]:
    family = descendants(replica.process.pid)
    return [pid for pid in family if text_of(Path(f"/proc/{pid}/comm")).strip() == "java"]


def test_crash_of_the_jvm_ends_the_process(replica: ReplicaProcess, tmp_path: Path) -> None:
    """Without its JVM a replica is of no use: exit code 11, so that it is started again. Until then the JVM yields the
    processors to the process that serves."""
    table = Table(tmp_path, "t")
    table.append(TICK)
    client = ScriptedClient(replica.address)
    dataflow = copies("d", FIRST, source=table.metadata, index="i")
    client.greet(next(EPOCHS), InstanceConfig("d", "/"), CreateDataflow(dataflow), Schedule(GlobalId("i")))
    wait_until(lambda: client.describe().hydrations == 1)
    family = descendants(replica.process.pid)
    # what a JVM is just about to start is called like it for a moment
    (jvm,) = wait_until(lambda: len(found := jvms(replica)) == 1 and found)
    own, of_jvm = (os.getpriority(os.PRIO_PROCESS, pid) for pid in (replica.process.pid, jvm))
    assert of_jvm == own + SPARK_NICENESS
    os.kill(jvm, signal.SIGKILL)

    assert replica.process.wait(BOUND) == 11
    wait_until(lambda: not living(family))
    client.close()
