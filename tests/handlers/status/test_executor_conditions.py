"""Conditions of executors, of the serving process and of its successor; and the end of a process with its hydrating
dataflows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.controller.harness import facade
from tests.crds.manifests import bent
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.instance import Instance
from tidemark_operator.handlers.publish.status_documents import Now
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.status.replica_statuses import replica_status_of
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import REPLICAS
from tidemark_operator.orchestrator.interface import Exit, Observation, Phase, ProcessProblem, Workers, replica_id
from tidemark_operator.resources.conditions.instance import InstanceFacts
from tidemark_operator.resources.manifest.meta import InstanceName, Namespace

QUOTA = {"reason": "QuotaExceeded", "message": 'pods "try-x" is forbidden: exceeded quota: q'}
BODY = bent("ComputeReplica", {"instance": "default"}, "r1")
BODY["metadata"] |= {"namespace": "ns", "uid": "u1", "generation": 1, "resourceVersion": "1"}


def process(shape: str, workers: Workers | None) -> Observation:
    return Observation(Phase.RUNNING, "a", f"{shape}-0", shape=shape, executors=workers)


def conditions(
    *observed: Observation, refused: str = "", online: bool = True, status: dict[str, Any] | None = None
) -> dict[str, str]:
    """The conditions of a replica whose processes all answer; the shape `refused` says that its executors are.
    `status`: so far."""
    core = Instance(ShardBook())
    if refused:
        core.replica_problems.record(replica_id("r1", refused), "executors", QUOTA)
    state = SimpleNamespace(online=online, last_error="", description=None)
    running = facade(core, replicas={replica_id("r1", o.shape): state for o in observed})
    facts = InstanceFacts(Namespace("ns"), InstanceName("default"), found=True)
    context = SimpleNamespace(
        running=lambda namespace, instance: running,
        orchestrator=SimpleNamespace(observe=lambda uid: observed),
        instance_facts=lambda namespace, instance: facts,
    )
    key, now = Key(REPLICAS, "ns", "r1"), Now({}, 1, 0)
    found: dict[str, Any] = replica_status_of(
        cast(ReconcileContext, context), key, BODY | {"status": status or {}}, now
    )
    return {c["type"]: f"{c['status']}/{c['reason']}: {c['message']}" for c in found["conditions"]}


def test_executors_that_are_refused_are_told_in_the_words_of_the_api_server() -> None:
    """The condition has the replica's report of them; a pod that is there and does not run says more, and is told
    first."""
    reported = conditions(process("a", Workers(2, 1)), refused="a")
    assert reported["ExecutorsReady"] == f"False/QuotaExceeded: 1 of 2 executors run: {QUOTA['message']}"
    assert reported["Online"].startswith("True/")

    reported = conditions(process("a", Workers(2, 1, ProcessProblem("Unschedulable", "no room"))), refused="a")
    assert reported["ExecutorsReady"] == "False/Unschedulable: 1 of 2 executors run: no room"


def test_a_shape_without_executors_does_not_take_over_and_reports_the_reason() -> None:
    """Its driver answers, and has nothing to compute with. One that only starts is no trouble yet."""
    old, new = process("a", None), process("b", Workers(2, 0, ProcessProblem("Unschedulable", "no room")))
    assert conditions(old, new)["UpToDate"].startswith("False/SurgeUnschedulable: the old shape goes on serving")
    assert "0 of 2 executors run: no room" in conditions(old, new)["UpToDate"]

    starting = process("b", Workers(2, 0))
    assert conditions(old, starting, refused="b")["UpToDate"].startswith("False/SurgeQuotaExceeded")
    assert conditions(old, starting)["UpToDate"].startswith("False/Surging")


def test_an_ended_process_is_reported_with_its_hydrating_dataflows_and_the_remedy() -> None:
    """The hydrations are of that very shape: one that was not there is not named."""
    ended = Observation(Phase.BACKING_OFF, "a", "a-0", restarts=2, last_exit=Exit(137, 0, "OOMKilled"), shape="a")
    names = ("huge", "wide", "next", "last")
    record = {"incarnation": "1", "dataflows": [{"dataflow": name, "revision": f"{name}-1"} for name in names]}
    reported = conditions(ended, online=False, status={"hydratingIn": {"a": record}})
    assert reported["Online"] == (
        "False/OOMKilled: the process ended with exit code 137 while it hydrated huge, last, next and 1 more, 2 "
        "restarts so far; it is started again; give it more memory: spec.resources.limits.memory"
    )
    for nobody in ({}, {"hydrating": record}, {"hydratingIn": {"b": record}}):
        reported = conditions(ended, online=False, status=nobody)
        assert reported["Online"].startswith("False/OOMKilled: the process ended with exit code 137, 2 restarts")
