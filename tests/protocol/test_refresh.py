"""Refresh schedules: their times, and schedules that a replica must refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.samples import DATAFLOW
from tidemark_protocol.errors import MalformedFrame, MalformedPlan
from tidemark_protocol.explain import explain_dataflow
from tidemark_protocol.ids import MAX_TIME, GlobalId, Time
from tidemark_protocol.messages.commands import CreateDataflow
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan.codec import encode
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription, MaterializedViewSink
from tidemark_protocol.plan.lir import DistinctReduce, Get, MapFilterProject, Reduce, Window, refs
from tidemark_protocol.plan.refresh import MAX_EVERY_MS, MAX_TIMES, RefreshSchedule
from tidemark_protocol.types import BIGINT, ColumnType
from tidemark_protocol.wire import protobuf

HOURLY = RefreshSchedule(every_ms=3_600_000, aligned_to=Time(1_000), at=(Time(5_000), Time(7_000)))
FAR = 60


def refreshed(schedule: RefreshSchedule | None, until: int | None = None) -> DataflowDescription:
    """The sample dataflow with the schedule on its view."""
    (export,) = DATAFLOW.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    sink = replace(export, sink=replace(export.sink, refresh=schedule))
    return replace(DATAFLOW, sink_exports=(sink,), until=None if until is None else Time(until))


def times_of(schedule: RefreshSchedule) -> list[int]:
    """All refreshes below FAR, by the definition."""
    every = schedule.every_ms
    regular = [t for t in range(FAR) if every is not None and (t - schedule.aligned_to) % every == 0]
    return sorted({*regular, *schedule.at})


@given(
    every=st.none() | st.integers(1, 20),
    aligned=st.integers(0, FAR),
    at=st.sets(st.integers(0, FAR - 1), max_size=4),
    time=st.integers(0, FAR - 25),
)
def test_agree_the_next_and_the_last_are_those_of_all_times(
    every: int | None, aligned: int, at: set[int], time: int
) -> None:
    """Times before, at and after the alignment."""
    schedule = RefreshSchedule(every, Time(aligned), tuple(map(Time, sorted(at))))
    times = times_of(schedule)

    assert schedule.last(time) == max((t for t in times if t <= time), default=None)
    assert schedule.next(time) == min((t for t in times if t >= time), default=None)


def test_the_end_of_time_has_no_refresh_after_it() -> None:
    """A refresh beyond MAX_TIME does not exist."""
    schedule = RefreshSchedule(every_ms=1_000)

    assert schedule.next(MAX_TIME) is None
    assert schedule.last(MAX_TIME) is not None
    assert RefreshSchedule(at=(MAX_TIME,)).next(MAX_TIME) == MAX_TIME


def test_a_schedule_survives_the_wire() -> None:
    """The schedule is in the canonical bytes of the description."""
    command = CreateDataflow(refreshed(HOURLY, until=9))
    data = protobuf.command_to_proto(command).SerializeToString()

    assert protobuf.command_from_proto(pb.Command.FromString(data)) == command


def test_a_view_without_a_schedule_is_encoded_as_before() -> None:
    """Digests of plans without a schedule do not change."""
    assert b"refresh" not in encode(refreshed(None))
    assert refreshed(None).plan_digest == "c3fe882e44ab9733363c8901d7ab96c1d3f551c077463f53806eba5637b0d3ab"


def test_another_refresh_or_end_is_another_dataflow() -> None:
    """Different schedules have different digests, so a replica does not reuse the dataflow."""
    digests = {
        refreshed(schedule, until).plan_digest
        for schedule in (None, HOURLY, replace(HOURLY, every_ms=1_000), replace(HOURLY, at=()))
        for until in (None, 9, 10)
    }

    assert len(digests) == 12


def test_a_replica_that_does_not_know_of_something_in_a_sink_refuses_it() -> None:
    """A replica without the feature refuses the bytes."""
    data = protobuf.command_to_proto(CreateDataflow(refreshed(HOURLY))).create_dataflow.description
    newer = pb.Command(create_dataflow=pb.CreateDataflow(description=data.replace(b'"refresh":', b'"repeats":')))

    with pytest.raises(MalformedPlan, match="no field 'repeats'"):
        protobuf.command_from_proto(newer)


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (RefreshSchedule(), "neither an interval nor a time"),
        (RefreshSchedule(every_ms=999), "every 999 ms"),
        (RefreshSchedule(every_ms=0), "every 0 ms"),
        (RefreshSchedule(every_ms=-1_000), "every -1000 ms"),
        (RefreshSchedule(every_ms=MAX_EVERY_MS + 1), "is outside"),
        (RefreshSchedule(every_ms=1_000, aligned_to=Time(-1)), "time -1 "),
        (RefreshSchedule(at=(Time(-1),)), "time -1 "),
        (RefreshSchedule(at=(Time(2**63 - 1),)), f"time {2**63 - 1} "),
        (RefreshSchedule(at=(Time(5), Time(5))), "not in ascending order"),
        (RefreshSchedule(at=(Time(5), Time(4))), "not in ascending order"),
        (RefreshSchedule(at=tuple(map(Time, range(MAX_TIMES + 1)))), "33 times"),
    ],
)
def test_must_refuse_an_invalid_schedule(schedule: RefreshSchedule, why: str) -> None:
    """The frame is refused before anything acts on it."""
    data = protobuf.command_to_proto(CreateDataflow(refreshed(schedule))).SerializeToString()

    with pytest.raises(MalformedFrame, match=why):
        protobuf.command_from_proto(pb.Command.FromString(data))


def test_explain_tells_it() -> None:
    """The printed schedule includes its end."""
    explanation = explain_dataflow(refreshed(HOURLY, until=9)).text()

    assert "refreshed every 3600000 ms counted from 1000 and at 5000, 7000\n" in explanation
    assert explanation.endswith("until 9\n")
    assert ", computed anew at each refresh\n" in explain_dataflow(with_policy(refreshed(HOURLY), "full")).text()
    for schedule in (None, HOURLY):
        auto = explain_dataflow(with_policy(refreshed(schedule), "auto")).text()
        assert ", computed anew where the changes of a time, or a refresh, are estimated to cost more\n" in auto


def test_explain_tells_the_upkeep_of_each_operator_by_the_policy() -> None:
    """Below the operator: a change of an incremental view, or a refresh that computes it anew."""
    schema = (ColumnType(BIGINT),)
    counted = Reduce(Get(GlobalId("t"), schema), refs(schema), (), DistinctReduce(), MapFilterProject.identity(schema))
    built = BuildDesc(GlobalId("o"), Window(counted, (), (), ()))

    def told(schedule: RefreshSchedule | None, policy: str) -> list[str]:
        dataflow = replace(with_policy(refreshed(schedule), policy), objects=(built,), index_exports=())
        lines = explain_dataflow(dataflow, rows={GlobalId("t"): 4096}).text().splitlines()
        return [line.strip() for line in lines if " a change: " in line or " a refresh: " in line]

    for policy in ("incremental", "auto"):
        for schedule in (HOURLY, None):
            assert told(schedule, policy) == [
                "computed anew, about 1,024 rows a change: a change may show in any row: all are one partition",
                "incremental, about 1 row a change: the number of rows of its group is kept, and a change is added to "
                "it",
            ]
    why = "a refresh: refreshPolicy full keeps no state between refreshes"
    assert told(HOURLY, "full") == [f"computed anew, about {n} rows {why}" for n in ("1,024", "4,096", "4,096")]


@pytest.mark.parametrize(
    ("schedule", "policy", "why"),
    [
        (None, "full", "full needs a refresh schedule"),
        (HOURLY, "seldom", "is none of incremental, full, auto"),
    ],
)
def test_must_refuse_an_invalid_policy(schedule: RefreshSchedule | None, policy: str, why: str) -> None:
    """A policy of tomorrow, and one without a schedule."""
    data = protobuf.command_to_proto(CreateDataflow(with_policy(refreshed(schedule), policy))).SerializeToString()

    with pytest.raises(MalformedFrame, match=why):
        protobuf.command_from_proto(pb.Command.FromString(data))


def with_policy(dataflow: DataflowDescription, policy: str) -> DataflowDescription:
    (export,) = dataflow.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    return replace(dataflow, sink_exports=(replace(export, sink=replace(export.sink, refresh_policy=policy)),))
