"""The reason why a relation is not further: the way from it to the input, replica or condition that holds it back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, at
from tidemark_operator.controller.reports.catch_up import catch_up
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.explanations.why import RelationSnapshot, ReplicaSnapshot, find_causes
from tidemark_protocol.ids import Time
from tidemark_protocol.pb.gateway_pb2 import Cause
from tidemark_protocol.plan.refresh import RefreshSchedule


def table(name: str, upper: int, obstacle: str = "") -> RelationSnapshot:
    return RelationSnapshot(name, "table", at(upper), obstacle=obstacle, runs="on replica r1")


def replica(name: str, write: int, problem: str = "", *, read: int = 0, hydrated: bool = True) -> ReplicaSnapshot:
    return ReplicaSnapshot(name, at(read or write), at(write), at(write), hydrated, problem)


def view(name: str, write: int, inputs: tuple[str, ...], *replicas: ReplicaSnapshot) -> RelationSnapshot:
    return RelationSnapshot(name, "index", at(write), inputs, replicas)


def reason(name: str, *seen: RelationSnapshot) -> tuple[str, str]:
    """The last thing on the way: what it is, and what is said of it."""
    (cause,) = find_causes(name, {s.name: s for s in seen})
    while held := [below for below in cause.because if below.holds]:
        (cause,) = held
    return cause.subject, cause.says


def test_the_slowest_input_is_the_reason_where_the_view_has_all_of_it() -> None:
    """The relation has two inputs, and a view between."""
    seen = [
        table("s.fast", 200),
        table("s.slow", 100),
        view("mid.mid", 100, ("s.slow",), replica("r1", 100)),
        view("top.top", 100, ("s.fast", "mid.mid"), replica("r1", 100)),
    ]

    assert reason("top", *seen) == ("s.slow", "on replica r1")
    assert reason("mid.mid", *seen) == ("s.slow", "on replica r1")


def test_the_furthest_replica_is_the_reason_where_the_inputs_are_further() -> None:
    """A slower one beside it decides nothing."""
    subject, says = reason(
        "top",
        table("s.t", 200),
        view("top.top", 100, ("s.t",), replica("r1", 50, "step failed: x"), replica("r2", 100)),
    )
    assert subject == "replica r2"
    assert "has not read everything" in says


def test_a_replica_that_catches_up_says_how_far_it_is() -> None:
    """In steps of bounded rows; a replica that has all of its inputs does not say it."""
    of = catch_up({"percent": "42", "goal": "200", "updates": "2100000"})
    behind = replace(replica("r1", 100), catching_up=of)
    _, says = reason("top", table("s.t", 200), view("top.top", 100, ("s.t",), behind))
    assert "42% of what it was behind is computed, about 2,100,000 updates before 1970-01-01T00:00:00.200" in says

    written = replace(replica("r1", 100, read=200), catching_up=of)
    _, says = reason("top", table("s.t", 200), view("top.top", 100, ("s.t",), written))
    assert "42%" not in says
    assert catch_up({}) is None


def test_a_replica_reports_the_step_it_is_busy_with() -> None:
    """Beside the reason."""
    text = "DataSource big reads 1 file(s) of table t, 254 MB"
    busy = ReplicaSnapshot("r1", at(100), at(100), at(100), True, busy=text)
    subject, says = reason("top", table("s.t", 200), view("top.top", 100, ("s.t",), busy))
    assert subject == "replica r1"
    assert says.endswith(f"; it is busy: {text}")


@pytest.mark.parametrize(
    ("on", "message"),
    [
        (replica("r1", 100, "step failed: no space left"), "step failed: no space left"),
        (replica("r1", 100, hydrated=False), "is hydrating"),
        (replica("r1", 100, read=200), "has read everything"),
        (ReplicaSnapshot("r1", at(200), at(200), at(100), True), "has computed more than it has written"),
    ],
)
def test_a_replica_reports_its_current_step(on: ReplicaSnapshot, message: str) -> None:
    """Its own words come first."""
    assert message in reason("top", table("s.t", 200), view("top.top", 100, ("s.t",), on))[1]


HOURLY = RefreshSchedule(3_600_000, Time(600_000), (Time(5_000_000),))


@pytest.mark.parametrize(
    ("schedule", "write", "read", "message", "replica_says"),
    [
        (
            HOURLY,
            4_500_000,
            4_200_001,
            "has everything that s.t has; refreshes every 1h, the last one planned was at 1970-01-01T01:10:00.000Z, "
            "the next at 1970-01-01T01:23:20.000Z",
            "has nothing to do before the next refresh",
        ),
        (
            RefreshSchedule(at=(Time(5_000),)),
            4_000,
            3_000,
            "has everything that s.t has; refreshes at given times, the next at 1970-01-01T00:00:05.000Z",
            "has nothing to do before the next refresh",
        ),
        (
            HOURLY,
            4_200_000,
            600_001,
            "its inputs are further than it is; refreshes every 1h",
            "has not read everything",
        ),
    ],
    ids=["between two", "before the first", "while one that is due is computed"],
)
def test_a_view_that_is_refreshed_says_when(
    schedule: RefreshSchedule, write: int, read: int, message: str, replica_says: str
) -> None:
    """A replica that has not read on means nothing, unless the table is behind."""
    upper = write if "everything" in message else write + 300_000
    on = ReplicaSnapshot("r1", at(read), at(read), at(write), True)
    seen = RelationSnapshot("v.v", "materializedView", at(write), ("s.t",), (on,), refresh=schedule)
    (cause,) = find_causes("v", {"v.v": seen, "s.t": table("s.t", upper)})

    assert cause.says.startswith(message)
    assert replica_says in next(below.says for below in cause.because if below.kind == "replica")


@pytest.mark.parametrize(
    ("write", "read", "until", "message", "replica_says"),
    [
        (None, None, None, "its inputs are further than it is; refreshes every 1h", "is hydrating"),
        (4_499_000, 4_200_001, None, "the next at 1970-01-01T01:23:20.000Z", "has not written yet"),
        (4_499_000, 4_200_001, 5_000_000, "and not again", "has not written yet that nothing changes"),
        (4_499_000, 4_199_999, None, "the next at 1970-01-01T01:23:20.000Z", "has not read everything"),
    ],
    ids=["nothing is written yet", "a tick behind", "it ends before the next", "one is due"],
)
def test_a_refreshed_view_that_is_behind_says_why(
    write: int | None, read: int | None, until: int | None, message: str, replica_says: str
) -> None:
    """Its replica reads on at refreshes alone, and no time is told that is not known."""
    table_at, input_at = (None if time is None else at(time) for time in (write, read))
    on = ReplicaSnapshot("r1", input_at, input_at, table_at, read is not None)
    end = None if until is None else Time(until)
    seen = RelationSnapshot("v.v", "materializedView", table_at, ("s.t",), (on,), refresh=HOURLY, until=end)
    (cause,) = find_causes("v", {"v.v": seen, "s.t": table("s.t", 4_500_000)})

    assert cause.says.endswith(message)
    assert replica_says in next(below.says for below in cause.because if below.kind == "replica")


def test_a_dataflow_that_does_not_run_shows_its_condition() -> None:
    """A source that is suspended, below a view that has all of it; a view that is refused."""
    seen = [
        table("s.t", 100, "Suspended: spec.suspend stops ingestion"),
        view("v.v", 100, ("s.t",), replica("r1", 100)),
    ]
    assert reason("v", *seen) == ("s.t", "Suspended: spec.suspend stops ingestion")

    refused = RelationSnapshot("v", "dataflow", None, obstacle="PlanRefused: line 1: no such function")
    assert reason("v", refused) == ("v", "PlanRefused: line 1: no such function")


def test_a_view_without_replicas_says_so() -> None:
    """It is its own reason."""
    assert reason("v", table("s.t", 100), view("v.v", 100, ("s.t",))) == ("v.v", "no replica has it")


def test_a_finished_relation_is_held_back_by_nothing() -> None:
    """Nothing is marked."""
    (cause,) = find_causes("v", {"v.v": RelationSnapshot("v.v", "index", EMPTY)})
    assert (cause.holds, list(cause.because)) == (False, [])


def test_a_task_that_reads_itself_comes_to_an_end() -> None:
    """And so does everything in a diamond of views, each shown once on the way."""
    seen = {"s.t": table("s.t", 100), "task.task": view("task.task", 100, ("task.task", "s.t"), replica("r1", 100))}
    for level in range(60):
        below = "s.t" if level == 0 else f"a{level - 1}.x"
        other = "s.t" if level == 0 else f"b{level - 1}.x"
        for name in (f"a{level}.x", f"b{level}.x"):
            seen[name] = view(name, 100, (below, other), replica("r1", 100))

    assert find_causes("task", seen)[0].holds
    assert size(find_causes("a59", seen)[0]) < 1000


def size(cause: Cause) -> int:
    return 1 + sum(map(size, cause.because))


def test_a_name_of_nothing_is_refused() -> None:
    """By name."""
    with pytest.raises(QueryRefused, match="no Dataflow, DataSource, export or table nowhere"):
        find_causes("nowhere", {})
