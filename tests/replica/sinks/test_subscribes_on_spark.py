"""Subscribes and copies in a real replica process, on Spark, over real shards, in both shapes of small steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.replica.conversations import unique
from tests.replica.plans import COLUMNS, copies
from tests.replica.process import ReplicaProcess, ScriptedClient, epochs
from tests.replica.tables import Row, Table, contents
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import AllowCompaction, Command, CreateDataflow, InstanceConfig, Schedule
from tidemark_protocol.messages.responses import (
    CopyToDone,
    CopyToResponse,
    Frontiers,
    Response,
    SubscribeBatch,
    SubscribeDropped,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import ClientSink, CopyToSink, DataflowDescription, SinkExport, SubscribeSink

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", params=["1", "0"], ids=["beside the driver", "as Spark jobs"])
def replica(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaProcess]:
    arguments = ("--cores", "2", "--driver-memory", "1g", "--driver-steps", request.param)
    process = ReplicaProcess(tmp_path_factory.mktemp("replica"), *arguments)
    yield process
    process.close()


def sink_over(table: Table, name: str, sink: ClientSink, until: int | None = None) -> DataflowDescription:
    plain = copies(name, 6, source=table.metadata)
    exports = (SinkExport(GlobalId(f"{name}-sink"), plain.objects[0].id, sink),)
    return replace(plain, sink_exports=exports, until=None if until is None else Time(until))


def begin_commands(*dataflows: DataflowDescription) -> list[Command]:
    created: list[Command] = [CreateDataflow(d) for d in dataflows]
    return created + [Schedule(id) for d in dataflows for id in d.export_ids]


def batches_of(batches: list[Response], id: GlobalId) -> list[SubscribeBatch]:
    results = [r.result for r in batches if isinstance(r, SubscribeResponse) and r.id == id]
    return [r for r in results if isinstance(r, SubscribeBatch)]


def updates_of(batches: list[SubscribeBatch]) -> list[tuple[Row, int, int]]:
    """The updates, after a look at the bounds."""
    found, reached = [], (Frontier.minimum(), 0)
    for batch in batches:
        assert (batch.lower, batch.lower_part) == reached < (batch.upper, batch.upper_part)
        assert batch.error is None
        reached = (batch.upper, batch.upper_part)
        for r in pa.ipc.open_stream(batch.updates).read_all().to_pylist() if batch.updates else ():
            found.append(((r["c0"], r["c1"]), r["__time"], r["__diff"]))
    return found


def test_agree_a_subscribe_tells_and_a_copy_holds_what_the_table_does(replica: ReplicaProcess, tmp_path: Path) -> None:
    """At every time since the as_of; both end as they should, and neither is reported by Frontiers."""
    table = Table(tmp_path, "t")
    table.append(10, ((1, "a"), 3, 2), ((2, None), 5, 1), ((1, "a"), 7, -1))
    follow = sink_over(table, unique("s"), SubscribeSink(COLUMNS))
    ends = sink_over(table, unique("e"), SubscribeSink(COLUMNS, False, Time(13)), until=13)
    place = f"{replica.home}/ns/_copies/{unique('c')}"
    copy = sink_over(table, unique("c"), CopyToSink(COLUMNS, place, "parquet"), until=7)
    (follow_id,), (ends_id,), (copy_id,) = follow.export_ids, ends.export_ids, copy.export_ids
    client = ScriptedClient(replica.address)
    client.greet(next(epochs()), InstanceConfig("default", str(replica.home)), *begin_commands(follow, ends, copy))
    client.wait_for(lambda responses: [b for b in batches_of(responses, follow_id) if b.upper >= Frontier.at(10)])
    table.append(20, ((2, None), 12, -1), ((3, "c"), 12, 1), ((3, "c"), 14, -1))
    client.wait_for(lambda responses: [b for b in batches_of(responses, follow_id) if b.upper >= Frontier.at(20)])
    client.wait_for(lambda responses: [b for b in batches_of(responses, ends_id) if b.upper.is_empty])
    client.wait_for(lambda responses: [r for r in responses if isinstance(r, CopyToResponse)])
    client.send(AllowCompaction(follow_id, Frontier.empty()), AllowCompaction(ends_id, Frontier.empty()))
    drops = client.wait_for(
        lambda responses: [r for r in responses if isinstance(getattr(r, "result", None), SubscribeDropped)]
    )
    responses = list(client.responses)
    client.close()

    updates = updates_of(batches_of(responses, follow_id))
    assert [contents(updates, time) for time in range(6, 20)] == [table.at(time) for time in range(6, 20)]
    changes = updates_of(batches_of(responses, ends_id))
    assert changes == [update for update in updates if 6 < update[1] < 13]
    assert drops == [SubscribeResponse(follow_id, SubscribeDropped(Frontier.at(20)))]
    answers = [r for r in responses if isinstance(r, CopyToResponse)]
    assert answers == [CopyToResponse(copy_id, CopyToDone(sum(table.at(6).values())))]
    rows = [tuple(r.values()) for f in Path(place).glob("*.parquet") for r in pq.read_table(f).to_pylist()]
    assert Counter(rows) == table.at(6)
    assert not [r for r in responses if isinstance(r, Frontiers)]
