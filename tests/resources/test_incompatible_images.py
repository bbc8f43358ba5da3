"""Features that no replica's image knows: conditions of the Dataflow and of a ComputeReplica."""

from __future__ import annotations

from dataclasses import replace

from tests.resources.test_conditions import INSTANCE, SERVING, expect
from tidemark_operator.resources.conditions.dataflow import dataflow_conditions
from tidemark_operator.resources.conditions.replica import Answering, ReplicaFacts, replica_conditions

WHY = "the image of replica r1 does not know refresh"


def test_a_dataflow_that_no_image_understands_says_so() -> None:
    """Waiting alone does not mend it. A finished dataflow needs nobody."""
    expect(
        dataflow_conditions(replace(SERVING, exports_hydrated=0, too_old=WHY, hydration="3%")),
        "Scheduled=True/Scheduled Hydrated=False/ImageTooOld Erroring=Unknown/ImageTooOld Ready=False/ImageTooOld "
        "Progressing=False/ImageTooOld",
    )
    expect(dataflow_conditions(replace(SERVING, too_old=WHY, finished=True)), "Ready=True/Finished")


def test_a_replica_says_what_it_lacks_and_what_that_holds_back() -> None:
    """It serves all else; beside one that has all, it never takes its place."""
    too_old = Answering(3, 2, "its image does not know refresh, and computes nothing of d")
    alone = replica_conditions(ReplicaFacts(INSTANCE, False, too_old))
    beside = replica_conditions(ReplicaFacts(INSTANCE, False, Answering(3, 3), too_old))

    expect(alone, "Online=True/Online Ready=False/ImageTooOld UpToDate=True/UpToDate")
    expect(beside, "Online=True/Online Ready=True/Hydrated UpToDate=False/Surging")
    assert all("2 of 3 dataflows are hydrated" in message[-1].message for message in (alone[:3], beside))
    assert all("and computes nothing of d" in message[-1].message for message in (alone[:3], beside))
