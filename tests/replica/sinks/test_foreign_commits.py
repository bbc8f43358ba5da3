"""Another program commits to the table of a view, or to one that the view reads, while a real replica runs: the replica
says so, computes the view anew, and the view's table is corrected; also where the replica dies in between."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.replica.plans import COLUMNS, copies, shard
from tests.replica.process import ReplicaProcess, ScriptedClient, epochs, wait_until
from tests.replica.tables import Table, persisted
from tidemark_persist import PartGone, ShardNotFound, open_shard
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.commands import AllowWrites, Command, CreateDataflow, InstanceConfig, Schedule
from tidemark_protocol.messages.responses import (
    Failure,
    FailureKind,
    Response,
    Status,
    SubscribeBatch,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import ShardMetadata, SinkExport, SubscribeSink
from tidemark_replica.dataflow.recomputation_pauses import QUIET_SECONDS

pytestmark = pytest.mark.spark

FIRST = 5
SUBSCRIBE = GlobalId("s-sink")
EPOCHS = epochs()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[ReplicaProcess]:
    process = ReplicaProcess(tmp_path, "--cores", "2", "--driver-memory", "1g")
    yield process
    process.close()


def upper_of(view: ShardMetadata) -> int:
    try:
        return open_shard(view.location).state().upper
    except ShardNotFound:
        return 0


def connected(replica: ReplicaProcess, table: Table, view: ShardMetadata) -> ScriptedClient:
    """A controller: the view, and a subscribe to the table, from the latest time on that the view can go on from."""
    as_of = max(FIRST, upper_of(view) - 1)
    dataflow = copies("view", as_of, source=table.metadata, view=view)
    plain = copies("s", FIRST, source=table.metadata)
    subscribe = replace(plain, sink_exports=(SinkExport(SUBSCRIBE, plain.objects[0].id, SubscribeSink(COLUMNS)),))
    (id,) = dataflow.export_ids
    commands: list[Command] = [CreateDataflow(dataflow), Schedule(id), AllowWrites(id, WriterTerm(1))]
    commands += [CreateDataflow(subscribe), Schedule(SUBSCRIBE)]
    client = ScriptedClient(replica.address)
    client.greet(next(EPOCHS), InstanceConfig("default", str(replica.home)), *commands)
    return client


def follows(table: Table, view: ShardMetadata, rows: int) -> None:
    """Appends, until the view has the table's contents; these are not the same before and after."""
    table.append(table.upper + 10, ((rows, "more"), table.upper + 1, 1))
    wait_until(lambda: upper_of(view) == table.upper)
    at = table.upper - 1
    assert persisted(view.location, at) == persisted(table.metadata.location, at)


def messages_of(kind: str) -> Callable[[list[Response]], list[str]]:
    def messages(responses: list[Response]) -> list[str]:
        return [r.fields["message"] for r in responses if isinstance(r, Status) and r.kind == kind]

    return messages


def pauses(responses: list[Response]) -> list[str]:
    return [r.message for r in responses if isinstance(r, Failure) and r.kind == FailureKind.STEP]


def error_of_subscribe(responses: list[Response]) -> list[str]:
    results = [r.result for r in responses if isinstance(r, SubscribeResponse) and r.id == SUBSCRIBE]
    return [r.error for r in results if isinstance(r, SubscribeBatch) and r.error is not None and r.is_void]


def test_what_others_do_to_tables_is_told_and_corrected_while_the_replica_runs(
    replica: ReplicaProcess, tmp_path: Path
) -> None:
    """DELETE in the view's table, in the table that it reads, and a backup in the place of the view's table."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 2), ((2, "b"), 4, 1))
    client = connected(replica, table, view)
    follows(table, view, 100)
    shutil.copytree(view.location, tmp_path / "backup")
    follows(table, view, 101)

    began = time.monotonic()
    DeltaTable(view.location).delete("s = 'a'")
    version = DeltaTable(view.location).version()
    assert client.wait_end() is None
    client.close()
    client = connected(replica, table, view)
    (message, *_) = client.wait_for(messages_of("table_changed"))
    assert f"another program committed version {version} (DELETE) to the table {view.location}" in message
    follows(table, view, 102)
    assert persisted(view.location, table.upper - 1)[1, "a"] == 2
    assert not error_of_subscribe(client.responses)

    DeltaTable(table.metadata.location).delete("s = 'b'")
    (message, *_) = client.wait_for(error_of_subscribe)
    assert f"(DELETE) to the table {table.metadata.location}" in message
    changed = time.monotonic() - began
    assert client.wait_end() is None
    if changed < QUIET_SECONDS:  # else the first change counts no more
        (paused, *_) = pauses(client.responses)
        assert "change 2 in a row, so the dataflow is computed again after a pause of 1 s" in paused
    client.close()
    client = connected(replica, table, view)
    follows(table, view, 103)
    assert (2, "b") not in persisted(view.location, table.upper - 1)
    assert client.wait_for(error_of_subscribe), "the subscribe goes on from what was before"

    shutil.rmtree(view.location)
    shutil.copytree(tmp_path / "backup", view.location)
    table.append(table.upper + 10)
    assert client.wait_end() is None
    client.close()
    client = connected(replica, table, view)
    assert any("a backup" in message for message in client.wait_for(messages_of("table_changed")))
    follows(table, view, 104)
    client.close()


def test_a_lost_file_of_a_view_is_told_and_corrected_while_the_replica_runs(
    replica: ReplicaProcess, tmp_path: Path
) -> None:
    """All files of the view are lost; the first step after the correction has what was in them."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 2), ((2, "b"), 4, 1))
    client = connected(replica, table, view)
    follows(table, view, 100)
    parts = open_shard(view.location).snapshot_parts(table.upper - 1)
    for part in parts:
        Path(view.location, part.path).unlink()
    assert client.wait_end() is None, "it is not noticed"
    client.close()
    with pytest.raises(PartGone):
        persisted(view.location, table.upper - 1)

    client = connected(replica, table, view)
    (message, *_) = client.wait_for(messages_of("table_changed"))
    assert f"of the table {view.location} is lost: another program deleted it" in message
    follows(table, view, 101)
    assert persisted(view.location, table.upper - 1)[1, "a"] == 2
    assert not error_of_subscribe(client.responses)
    client.close()


def test_crash_after_the_commit_of_another_program_is_corrected(replica: ReplicaProcess, tmp_path: Path) -> None:
    """SIGKILL after both tables were changed, before the replica has done anything about it."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 2), ((2, "b"), 4, 1))
    client = connected(replica, table, view)
    follows(table, view, 100)
    DeltaTable(view.location).delete("s = 'a'")
    DeltaTable(table.metadata.location).delete("s = 'b'")
    replica.kill()
    client.close()
    replica.start()
    client = connected(replica, table, view)
    follows(table, view, 101)
    expected = persisted(view.location, table.upper - 1)
    assert (expected[1, "a"], expected[2, "b"]) == (2, 0)
    client.close()


@pytest.mark.slow
def test_a_program_that_goes_on_changing_a_table_ends_few_streams_of_the_controller(
    replica: ReplicaProcess, tmp_path: Path
) -> None:
    """Several changes a second: the view begins anew after pauses that double, and is right once the program ends."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 2), ((2, "b"), 4, 1))
    clients = [connected(replica, table, view)]
    follows(table, view, 100)
    stop = threading.Event()

    def change() -> None:
        while not stop.wait(0.2):
            table.append(table.upper + 10, ((7, "gone"), table.upper + 1, 1))
            DeltaTable(table.metadata.location).delete("s = 'gone'")

    def is_there() -> bool:
        """The controller connects again whenever a stream has ended."""
        if clients[-1].has_ended:
            assert clients[-1].wait_end() is None
            clients[-1].close()
            clients.append(connected(replica, table, view))
        return upper_of(view) == table.upper

    program, began = threading.Thread(target=change), time.monotonic()
    program.start()
    try:
        while time.monotonic() - began < 12 or len(clients) < 3:
            is_there()
            time.sleep(0.1)
    finally:
        stop.set()
        program.join()
    ended, took = len(clients) - 1, time.monotonic() - began
    assert 2 <= ended <= 2 + math.log2(took + 1), f"{ended} streams have ended in {took} s"

    table.append(table.upper + 10, ((101, "more"), table.upper + 1, 1))
    wait_until(is_there)
    at = table.upper - 1
    assert persisted(view.location, at) == persisted(table.metadata.location, at)
    clients[-1].close()
