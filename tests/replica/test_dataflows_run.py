"""Dataflows in a real replica process, on Spark, over real shards, driven by a scripted client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replica.plans import copies, shard
from tests.replica.process import ReplicaProcess, ScriptedClient, epochs
from tests.replica.tables import Table, persisted
from tidemark_persist import open_shard
from tidemark_protocol.commands import AllowWrites, Command, CreateDataflow, InstanceConfig, Schedule
from tidemark_protocol.dataflow import DataflowDescription
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.responses import Frontiers, Response

pytestmark = pytest.mark.spark

EPOCHS = epochs()
EMPTY = Frontier.empty()


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaProcess]:
    process = ReplicaProcess(tmp_path_factory.mktemp("replica"), "--cores", "2", "--driver-memory", "1g")
    yield process
    process.close()


@pytest.fixture
def connect(replica: ReplicaProcess) -> Iterator[Callable[..., ScriptedClient]]:
    """A new client that says these commands in its initialization."""
    clients = []

    def connect(*commands: Command) -> ScriptedClient:
        client = ScriptedClient(replica.address)
        clients.append(client)
        client.greet(next(EPOCHS), InstanceConfig("default", str(replica.home)), *commands)
        return client

    yield connect
    for client in clients:
        client.close()


def started(*dataflows: DataflowDescription) -> list[Command]:
    """Created, scheduled, their materialized views allowed to write."""
    commands: list[Command] = [CreateDataflow(d) for d in dataflows]
    commands += [Schedule(id) for d in dataflows for id in d.export_ids]
    return commands + [AllowWrites(e.id, WriterTerm(1)) for d in dataflows for e in d.sink_exports]


def furthest(kind: str, id: str) -> Callable[[list[Response]], Frontier]:
    """The last reported frontier of a kind."""

    def last(responses: list[Response]) -> Frontier:
        found = [getattr(r, kind) for r in responses if isinstance(r, Frontiers) and r.id == id]
        return max((f for f in found if f is not None), default=Frontier.minimum())

    return last


def reaches(kind: str, id: str, time: int) -> Callable[[list[Response]], Any]:
    return lambda responses: furthest(kind, id)(responses) >= Frontier.at(time)


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def test_views_follow_their_input(
    replica: ReplicaProcess, connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """An index and a materialized view hydrate at the as_of, then follow each tick; every time is in the shard."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 2), ((2, None), 5, 1), ((1, "a"), 7, -1))
    dataflow = copies(unique("d"), 6, source=table.metadata, index=unique("i"), view=view)
    client = connect(*started(dataflow))
    index_id, view_id = dataflow.export_ids
    client.wait_for(reaches("output", index_id, 10))
    client.wait_for(reaches("write", view_id, 10))
    table.append(20, ((2, None), 12, -1), ((3, "c"), 12, 1), ((3, "c"), 14, -1))
    client.wait_for(reaches("write", view_id, 20))

    state = open_shard(view.location).state()
    assert (state.since, state.upper, state.term) == (6, 20, 1)
    for time in range(6, 20):
        assert persisted(view.location, time) == table.at(time)
    assert client.wait_for(reaches("input", index_id, 20))
    assert [d.export_ids for d in client.describe().dataflows] == [dataflow.export_ids]
