"""The first write of a large view by a real replica with executor processes, one of which is killed while its task
writes (docs/decisions/0110-large-appends-are-written-by-tasks.md)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.replica.plans import copies, shard
from tests.replica.process import ReplicaProcess, ScriptedClient, descendants, epochs, living, wait_until
from tests.replica.sinks.test_foreign_commits import upper_of
from tests.replica.tables import Table
from tidemark_persist import DIFF, TIME, open_shard
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.commands import AllowWrites, CreateDataflow, InstanceConfig, Schedule
from tidemark_protocol.plan.dataflow import ShardMetadata

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 3_000_000
"""Some 200 MB of staged output: several pieces for each executor."""
EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[ReplicaProcess]:
    process = ReplicaProcess(tmp_path, "--master", "local-cluster[2,1,1024]", "--driver-memory", "1g")
    yield process
    process.close()


def large_table(folder: Path) -> Table:
    table = Table(folder, "t")
    n = np.arange(ROWS)
    rows = {
        "n": pa.array(n),
        "s": pc.binary_join_element_wise("customer number", pa.array(n % 1_000_003).cast(pa.string()), " "),
        TIME: pa.array(np.full(ROWS, 3)),
        DIFF: pa.array(1 + n % 2),
    }
    table.shard.compare_and_append(pa.table(rows), expected_upper=0, new_upper=10, term=1)
    table.upper = 10
    return table


def executors(replica: ReplicaProcess) -> list[int]:
    """The pids of the executors' JVMs."""
    found = []
    for pid in descendants(replica.process.pid):
        with suppress(OSError):
            program, *words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if program.endswith("java") and any(word.endswith(EXECUTOR) for word in words):
                found.append(pid)
    return found


def writing(replica: ReplicaProcess, view: ShardMetadata) -> int | None:
    """An executor, a task of which has a file of the view's table open."""
    for executor in executors(replica):
        for pid in descendants(executor):
            with suppress(OSError):
                opened = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
                if any(path.startswith(view.location) for path in opened):
                    return executor
    return None


def test_a_first_write_by_tasks_outlives_an_executor(replica: ReplicaProcess, tmp_path: Path) -> None:
    """The rows are exactly the view's."""
    table, view = large_table(tmp_path), shard("v", str(tmp_path))
    dataflow = copies("view", 5, source=table.metadata, view=view)
    (id,) = dataflow.export_ids
    client = ScriptedClient(replica.address)
    commands = CreateDataflow(dataflow), Schedule(id), AllowWrites(id, WriterTerm(1))
    client.greet(next(epochs()), InstanceConfig("default", str(replica.home)), *commands)

    victim = wait_until(lambda: writing(replica, view) or upper_of(view), pause=0.005)
    assert upper_of(view) == 0, f"no executor was seen to write:\n{replica.log_text()[-4_000:]}"
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in living([victim]))
    wait_until(lambda: upper_of(view) == table.upper)

    found, expected = (open_shard(location).snapshot(9) for location in (view.location, table.metadata.location))
    assert found.sort_by("n").equals(expected.sort_by("n"))
    files = {part.path for part in open_shard(view.location).snapshot_parts(9)}
    assert len(files) > 2, "several tasks have written"
    client.close()
