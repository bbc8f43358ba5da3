"""A real replica process whose real S3 server hangs (SIGSTOP): it answers, and goes on when the server does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.replica.conversations import reaches, started
from tests.replica.peek.test_peeks_on_spark import answer, peek_of
from tests.replica.plans import COLUMNS, copies
from tests.replica.process import ReplicaProcess, ScriptedClient, epochs
from tests.replica.tables import Table
from tests.s3_server import S3Server
from tidemark_operator.controller.replicas.replica_connection import DESCRIBE_SECONDS
from tidemark_persist import create_or_open
from tidemark_protocol.ids import INSTANCE, GlobalId, ShardId
from tidemark_protocol.messages.commands import IndexTarget, InstanceConfig
from tidemark_protocol.messages.responses import Description, Response, Status
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.wire.describe import description_from_proto
from tidemark_replica.values.arrow_types import arrow_schema

pytestmark = pytest.mark.spark

MANY = 24
"""More than a replica looks at at a time."""


@pytest.fixture
def root(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where shards are; the environment says how they are reached."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    return s3.location("hanging-under-a-replica")


@pytest.fixture
def replica(root: str, tmp_path: Path) -> Iterator[ReplicaProcess]:
    process = ReplicaProcess(tmp_path, "--cores", "2", "--driver-memory", "1g", environ=dict(os.environ))
    yield process
    process.close()


def test_a_replica_with_a_hanging_store_describes_itself_answers_from_memory_and_goes_on(
    s3: S3Server, root: str, replica: ReplicaProcess
) -> None:
    """Describe comes within the operator's patience, again and again, and with what it cannot read told as that."""
    table = Table(root, "t")
    table.append(10, ((1, "a"), 3, 1), ((2, "b"), 5, 1))
    others = {f"other-{n}": f"{root}/other-{n}" for n in range(MANY)}
    for name, location in others.items():
        create_or_open(location, arrow_schema(COLUMNS), shard_id=name)
    dataflow = copies("d", 4, source=table.metadata, index="i")
    index, shards = IndexTarget(GlobalId("i")), {"t": table.metadata.location, **others}
    client = ScriptedClient(replica.address)
    client.greet(next(epochs()), InstanceConfig("default", root), *started(dataflow))
    client.wait_for(reaches("output", "i", 10))
    assert sorted(answer(client, peek_of(index, 9))) == [(1, "a"), (2, "b")]
    before = client.describe(shards)
    assert not any(shard.error for shard in before.shards)

    with s3.hanging():
        for asked in ({}, shards, {}, shards):
            responses = described(client, asked)
            assert (responses.hydrations, len(responses.dataflows)) == (before.hydrations, 1)
            assert all(shard.error for shard in responses.shards)
            assert {str(shard.id) for shard in responses.shards} == set(asked)
            assert sorted(answer(client, peek_of(index, 9))) == [(1, "a"), (2, "b")]
        client.wait_for(lambda responses: problems(responses)[-1:] == ["Unreachable"])
        assert sorted(answer(client, peek_of(index, 9))) == [(1, "a"), (2, "b")]

    table.append(20, ((3, "c"), 12, 1))
    client.wait_for(reaches("output", "i", 20))
    assert sorted(answer(client, peek_of(index, 19))) == [(1, "a"), (2, "b"), (3, "c")]
    client.wait_for(lambda responses: problems(responses)[-1:] == [None])
    after = client.describe(shards)
    assert (after.incarnation, after.hydrations) == (before.incarnation, before.hydrations)
    client.close()


def described(client: ScriptedClient, shards: dict[str, str]) -> Description:
    """The answer to the operator's question: it takes a replica that does not answer by then for dead."""
    refs = [pb.ShardRef(id=ShardId(id), location=location) for id, location in shards.items()]
    try:
        reported = client.stub.Describe(pb.DescribeRequest(shards=refs), timeout=DESCRIBE_SECONDS)
    except grpc.RpcError as error:
        raise AssertionError(f"a store that hangs keeps a replica from saying what it has: {error}") from None
    return description_from_proto(reported)


def problems(responses: list[Response]) -> list[str | None]:
    """With the store, one after the other; None: it serves."""
    statuses = (r for r in responses if isinstance(r, Status) and (r.id, r.kind) == (INSTANCE, "storage"))
    return [r.fields.get("reason") for r in statuses]
