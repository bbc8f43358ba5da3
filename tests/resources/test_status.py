"""Status documents: shapes of frontiers, conditions with their history, and changes that may wait."""

from __future__ import annotations

import pytest

from tests.protocol.samples import DATAFLOW
from tidemark_operator.handlers.publish.status_documents import (
    ExportStatus,
    Now,
    ReplicaExport,
    dataflow_status,
    has_arrived,
    replica_status,
    urgent,
)
from tidemark_operator.handlers.revisions.revision_marks import document
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision
from tidemark_operator.resources.conditions.condition import Verdict, holds, merge_conditions, no, unknown, yes
from tidemark_operator.resources.conditions.frontier import Reported, frontier_status, meet, parse_frontier
from tidemark_operator.resources.manifest.dataflow import INDEX
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.types import Column, SqlType

NOW_MS = 1_700_000_000_000
NOW = "2023-11-14T22:13:20Z"
LATER_MS = NOW_MS + 60_000
MARK = ActiveRevision("flow-1", 1, 1, "sha256:s", DataflowRevision(DATAFLOW, (), (), DATAFLOW.plan_digest, 0, ""))


@pytest.mark.parametrize(
    ("frontier", "shape"),
    [
        (None, None),
        (Frontier.empty(), {"finished": True}),
        (Frontier.at(NOW_MS - 1500), {"time": NOW_MS - 1500, "at": "2023-11-14T22:13:18Z"}),
        (Frontier.at(NOW_MS + 99_000), {"time": NOW_MS + 99_000, "at": NOW}),
        (Frontier.at(2**63 - 2), {"time": 2**63 - 2, "at": NOW}),
        (Frontier.at(0), {"time": 0, "at": "1970-01-01T00:00:00Z"}),
    ],
)
def test_frontier_is_a_time_finished_or_absent(frontier: Reported, shape: dict[str, object] | None) -> None:
    """`at` of a time to come is now, or LAG would be negative; `time` stays exact. Reading gives it back."""
    assert frontier_status(frontier, NOW_MS) == shape
    assert parse_frontier(shape) == frontier


def test_meet_is_unknown_while_one_is() -> None:
    """A Dataflow's LAG must not look good because one export has not been heard of."""
    assert meet([Frontier.at(5), Frontier.empty(), Frontier.at(3)]) == Frontier.at(3)
    assert meet([Frontier.empty(), Frontier.empty()]) == Frontier.empty()
    assert meet([Frontier.at(5), None]) is None
    assert meet([]) is None


def merged(old: list[Verdict], new: list[Verdict], generation: int = 2) -> list[dict[str, object]]:
    before = merge_conditions([], old, 1, NOW_MS)
    return merge_conditions(before, new, generation, LATER_MS)


def test_transition_time_stays_while_the_status_does() -> None:
    """A new reason, message or generation is no transition."""
    [condition] = merged([no("Ready", "A", "a")], [no("Ready", "B", "b")])

    assert condition == {
        "type": "Ready",
        "status": "False",
        "reason": "B",
        "message": "b",
        "lastTransitionTime": NOW,
        "observedGeneration": 2,
    }


@pytest.mark.parametrize("after", [yes("Ready", "R"), unknown("Ready", "R")])
def test_transition_time_moves_with_the_status(after: Verdict) -> None:
    """Unknown is a status of its own."""
    [condition] = merged([no("Ready", "R")], [after])

    assert condition["lastTransitionTime"] == "2023-11-14T22:14:20Z"


def test_conditions_no_longer_spoken_of_are_dropped() -> None:
    """A condition of an older version of the operator must not stay for ever."""
    assert [c["type"] for c in merged([yes("Old", "R"), yes("Ready", "R")], [yes("Ready", "R")])] == ["Ready"]


def test_a_long_message_is_cut() -> None:
    """Parser messages can hold the whole SQL."""
    [condition] = merged([], [no("Planned", "Syntax", "x" * 100_000)])

    assert len(str(condition["message"])) == 2048


def test_an_older_generations_condition_does_not_hold_for_the_new_one() -> None:
    """Right after an edit nothing is known of it."""
    conditions = merge_conditions([], [yes("Ready", "R")], 1, NOW_MS)

    assert holds(conditions, "Ready", 1)
    assert not holds(conditions, "Ready", 2)


def export(write: Reported = None, hydrated: bool = True) -> ExportStatus:
    return ExportStatus(
        "e",
        INDEX,
        id="u1",
        columns=(Column("n", SqlType("decimal", 15, 2), False),),
        key=("n",),
        write_frontier=write,
        hydrated=hydrated,
        replicas=(ReplicaExport("r1", hydrated, write),),
    )


def dataflow_document(write: Reported = None, ready: bool = True, hydrated: bool = True) -> dict[str, object]:
    verdict = yes("Ready", "Ready") if ready else no("Ready", "NoReplicaOnline")
    return dataflow_status(Now({}, 1, NOW_MS), [verdict], [export(write, hydrated)], document(MARK))


def test_unknown_values_are_left_out_of_a_status() -> None:
    """Null is not absent to a JSON merge patch, and the schema refuses it."""
    document = dataflow_document()

    assert "writeFrontier" not in document
    assert document["exports"] == [
        {
            "name": "e",
            "kind": "index",
            "id": "u1",
            "columns": [{"name": "n", "type": "decimal(15,2)", "nullable": False}],
            "key": ["n"],
            "hydrated": True,
            "replicas": [{"name": "r1", "hydrated": True}],
        }
    ]


def test_zero_is_written() -> None:
    """Writer term 0 and time 0 are values."""
    shown = dataflow_document(Frontier.at(0))

    assert shown["revision"] == {
        "name": "flow-1",
        "generation": 1,
        "specDigest": "sha256:s",
        "planDigest": DATAFLOW.plan_digest,
        "asOf": DATAFLOW.as_of,
        "writerTerm": 0,
    }
    assert shown["writeFrontier"] == {"time": 0, "at": "1970-01-01T00:00:00Z"}


def test_moving_frontiers_can_wait_and_everything_else_cannot() -> None:
    """The budget of status writes: conditions and hydration at once, frontiers now and then."""
    old = dataflow_document(Frontier.at(1000))

    assert not urgent(old, dataflow_document(Frontier.at(2000)))
    assert urgent(old, dataflow_document(Frontier.at(1000), ready=False))
    assert urgent(old, dataflow_document(Frontier.at(1000), hydrated=False))


def test_a_hydration_that_moves_on_can_wait_and_its_end_cannot() -> None:
    """Percentages are counters, in the replicas' part as in the message of the condition."""

    def document(percent: int, verdict: Verdict) -> dict[str, object]:
        exports = [ExportStatus("e", INDEX, replicas=(ReplicaExport("r1", False, None, percent),))]
        return dataflow_status(Now({}, 1, NOW_MS), [verdict], exports, None)

    old = document(7, no("Hydrated", "Hydrating", "7%; 0 of 1 exports are hydrated"))

    assert "'hydratedPercent': 7" in str(old)
    assert not urgent(old, document(42, no("Hydrated", "Hydrating", "42%; 0 of 1 exports are hydrated")))
    assert urgent(old, document(42, no("Hydrated", "NoReplicaOnline", "r1 is gone")))
    assert urgent(old, document(42, yes("Hydrated", "Hydrated")))


def test_a_replica_that_counts_can_wait_and_its_conditions_cannot() -> None:
    """Each Dataflow that hydrates there is counted."""

    def document(dataflows: int, verdict: Verdict) -> dict[str, object]:
        return replica_status(Now({}, 1, NOW_MS), [verdict], {"id": "i1"}, dataflows, dataflows, dataflows)

    old = document(7, yes("Ready", "Hydrated", "7 dataflows"))

    assert not urgent(old, document(8, yes("Ready", "Hydrated", "8 dataflows")))
    assert urgent(old, document(8, no("Ready", "Hydrating", "7 of 8 dataflows are hydrated")))
    assert urgent(old, document(8, no("Ready", "Killed", "the process ended")))


@pytest.mark.parametrize(
    ("verdicts", "arrived"),
    [
        ([yes("Ready", "Ready"), no("Progressing", "UpToDate")], True),
        ([no("Ready", "Type"), no("Progressing", "Type")], True),
        ([no("Ready", "Hydrating"), yes("Progressing", "Hydrating")], False),
        ([yes("Ready", "Ready"), yes("Progressing", "Replacing")], False),
        ([yes("Online", "Online"), yes("Ready", "Ready")], True),
        ([yes("Online", "Online"), no("Ready", "Hydrating")], True),
        ([yes("Online", "Online"), no("ExecutorsReady", "Starting")], False),
        ([], False),
    ],
)
def test_an_arrived_status_is_recognised(verdicts: list[Verdict], arrived: bool) -> None:
    """Nothing more will change by waiting, whether for good or ill; where no condition tells, nobody knows."""
    assert has_arrived(dataflow_status(Now({}, 1, NOW_MS), verdicts, [], None)) is arrived
