"""Objects that only say of themselves that they are a replica's: the operator neither counts nor deletes them."""

from __future__ import annotations

import asyncio
import copy
import json
import secrets
from collections.abc import Mapping
from typing import Any

import pytest

from tests.orchestrator.clusters import Cluster, of, one, until
from tests.orchestrator.pods import LARGE, SETTINGS, SMALL, small
from tests.waiting import BOUND
from tidemark_operator.kube.client import Body, Kube
from tidemark_operator.orchestrator.interface import Owner, Phase
from tidemark_operator.orchestrator.kubernetes import templates
from tidemark_operator.orchestrator.kubernetes.names import DRIVER, EXECUTOR, INSTANCE_UID, SHAPE, ReplicaShape, member
from tidemark_operator.orchestrator.kubernetes.ownership import instance_of_budget, shape_of_set

MADE = templates.stateful_set(small(), SETTINGS)
NOTHING: Mapping[str, str] = {}
BUDGET = templates.disruption_budget("ns", Owner("default", "uid-default"))


def bent(body: Body, owner: Mapping[str, Any] = NOTHING, labels: Mapping[str, str] = NOTHING, **metadata: Any) -> Body:
    """The same but for this."""
    changed = copy.deepcopy(body)
    changed["metadata"]["labels"] |= labels
    changed["metadata"]["ownerReferences"][0] |= owner
    changed["metadata"] |= metadata
    return changed


@pytest.mark.parametrize(
    ("body", "ours"),
    [
        (MADE, True),
        (bent(MADE, owner={"apiVersion": "compute.tidemark.dev/v1"}), True),
        (bent(MADE, ownerReferences=[]), False),
        (bent(MADE, owner={"controller": False}), False),
        (bent(MADE, owner={"kind": "ComputeInstance"}), False),
        (bent(MADE, owner={"apiVersion": "another.dev/v1"}), False),
        (bent(MADE, owner={"uid": "another"}), False),
        (bent(MADE, owner={"name": "another"}), False),
        (bent(MADE, labels={SHAPE: "another"}), False),
        (bent(MADE, name="another"), False),
        (bent(MADE, labels={SHAPE: ""}), False),
    ],
)
def test_a_stateful_set_is_ours_by_owner_name_and_labels_alike(body: Body, ours: bool) -> None:
    """Whoever can put on all of them can delete it anyway."""
    assert shape_of_set(body) == ((SMALL.key, small().shape) if ours else None)


def test_a_budget_is_ours_by_its_owner() -> None:
    """Whatever it is called."""
    assert instance_of_budget(bent(BUDGET, name="another")) == "uid-default"
    assert instance_of_budget(bent(BUDGET, ownerReferences=[])) is None
    assert instance_of_budget(bent(BUDGET, labels={INSTANCE_UID: "another"})) is None


def strip(body: Body, name: str, owner: dict[str, Any] | None = None) -> str:
    """The object as JSON, under another name, without its owner or with another."""
    return json.dumps(bent(body, name=name, ownerReferences=[owner] if owner else []))


@pytest.mark.cluster
def test_a_foreign_object_with_our_labels_is_left_alone(cluster: Cluster) -> None:
    """A StatefulSet, of a replica that there is and of one that there is not; a budget; and pods beside ours."""
    spec = cluster.replica(LARGE)
    wanted, strange = member(spec, SETTINGS), ReplicaShape(spec, "b17e44d0")
    gone = templates.stateful_set(strange, SETTINGS)
    gone["metadata"]["labels"] = {**gone["metadata"]["labels"], "compute.tidemark.dev/replica-uid": "nobody"}
    foreign = {
        "statefulset.apps/beside": strip(templates.stateful_set(strange, SETTINGS), "beside"),
        "statefulset.apps/gone": strip(gone, "gone"),
        "poddisruptionbudget.policy/any": strip(
            templates.disruption_budget(cluster.namespace, Owner("any", "nobody")), "any"
        ),
    }
    template = templates.stateful_set(wanted, SETTINGS)["spec"]["template"]["spec"]
    for name, role in (("driver", DRIVER), ("executor", EXECUTOR)):
        metadata = {"name": name, "labels": wanted.labels(role)}
        foreign[f"pod/{name}"] = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template})

    async def scenario(kube: Kube) -> None:
        for body in foreign.values():
            cluster.kubectl("create", "-f", "-", stdin=body)
        cluster.report("driver", {"phase": "Failed", "reason": "Strange"})
        cluster.report("executor", {"phase": "Running"})
        orchestrator = of(kube, spec)
        await until(orchestrator, lambda: f"pod/{wanted.name}-0" in cluster.made())
        await orchestrator.step()

        seen = one(orchestrator, spec)
        assert (seen.phase, seen.problem, seen.executors and seen.executors.running) == (Phase.STARTING, None, 0)
        orchestrator.drop(spec.key)
        await until(orchestrator, lambda: not any(wanted.name in name for name in cluster.made()))
        await orchestrator.step()
        assert set(foreign) <= set(cluster.made())

    cluster.run(scenario)


@pytest.mark.cluster
def test_a_stateful_set_of_another_namespace_is_none_of_a_replicas(cluster: Cluster) -> None:
    """Though it names the replica as its owner, and is older."""
    other = f"{cluster.namespace}-{secrets.token_hex(3)}"
    cluster.plane.kubectl("create", "namespace", other)
    spec = cluster.replica(SMALL)
    forged = templates.stateful_set(ReplicaShape(spec, "b17e44d0"), SETTINGS)
    forged["metadata"]["namespace"] = other

    async def scenario() -> None:
        async with Kube.connect(cluster.plane.kubeconfig, (cluster.namespace, other)) as kube:
            orchestrator = of(kube, spec)
            cluster.plane.kubectl("create", "-f", "-", stdin=json.dumps(forged))
            await orchestrator.step()
            await orchestrator.step()
            assert one(orchestrator, spec).shape == member(spec, SETTINGS).shape

    try:
        asyncio.run(asyncio.wait_for(scenario(), BOUND))
    finally:
        cluster.plane.kubectl("delete", "namespace", other, "--wait=false")
