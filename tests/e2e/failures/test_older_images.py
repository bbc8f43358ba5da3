"""A replica of an older image computes all Dataflows but those with a newer field, which a newer replica computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.system import System, wait_for
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

OLDER = Path(__file__).parents[1] / "older"
COUNT = "SELECT count(*) AS orders FROM tpch.orders"


@pytest.fixture(scope="module")
def system(own_system: System) -> System:
    return own_system


@pytest.fixture(scope="module", autouse=True)
def older() -> Iterator[None]:
    """The replica r1 of the system that is started then is of an older image."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(OLDER), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        yield


def refreshed(system: System, name: str) -> None:
    spec = {"instance": "default", "sql": COUNT, "materializedView": {}, "refresh": {"every": "2s"}}
    system.apply("Dataflow", name, spec)


def test_one_dataflow_that_an_older_replica_does_not_know_takes_nothing_else_from_it(system: System) -> None:
    """It used to end each connection at it. Present dataflows go on, new ones begin, queries are answered; a newer
    replica beside it computes all."""
    system.dataflow("before", COUNT)
    system.wait_hydrated("before")
    assert system.replica_says().plan_features == ()
    (pid,) = system.replica_pids().values()
    connections = system.process_says(pid).epoch

    refreshed(system, "seldom")
    message = system.wait_condition("dataflow", "seldom", "Hydrated", "False", "ImageTooOld")
    assert message.startswith("the image of replica r1 does not know refresh")
    for type_ in ("Ready", "Progressing"):
        assert system.wait_condition("dataflow", "seldom", type_, "False", "ImageTooOld") == "see condition Hydrated"
    system.dataflow("after", COUNT)
    system.wait_up_to_date("after")
    assert system.query("SELECT orders FROM after")["rows"]
    assert system.query("SELECT count(*) FROM tpch.customer")["rows"]
    end = system.frontier("before")
    wait_for("what was there to go on", lambda: system.frontier("before") > end, system.log)
    # the query's dataflow counts for as long as it runs
    message = "2 of 3 dataflows are hydrated; its image does not know refresh, and computes nothing of seldom"
    ready = "computereplica", "r1", "Ready", "False", "ImageTooOld"
    wait_for("the replica to say so", lambda: system.wait_condition(*ready) == message, system.log)
    assert system.condition("computereplica", "r1", "Online")["status"] == "True"
    assert system.process_says(pid).epoch == connections, "it was connected all the while"

    system.apply("ComputeReplica", "r2", system.get("computereplica", "r1")["spec"])
    system.wait_up_to_date("seldom")
    system.wait_condition("computereplica", "r2", "Ready")
    newer = next(p for p in system.replica_pids().values() if p != pid)
    assert system.process_says(newer).plan_features == SUPPORTED_FEATURES
    assert system.query("SELECT orders FROM seldom")["rows"]
    assert system.condition("dataflow", "seldom", "Ready")["status"] == "True"
    assert system.process_says(pid).epoch == connections

    system.kubectl("delete", "dataflow", "seldom", "--timeout=300s")
    system.wait_condition("computereplica", "r1", "Ready")
