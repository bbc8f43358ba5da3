"""Surges of surges, and their belongings, at a real API server with a real StatefulSet controller."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.orchestrator.clusters import RUNNING, Cluster, of, one, until
from tests.orchestrator.pods import LARGE, SETTINGS, SMALL
from tidemark_operator.kube.client import Kube
from tidemark_operator.kube.objects import DISRUPTION_BUDGETS
from tidemark_operator.orchestrator.interface import Phase
from tidemark_operator.orchestrator.kubernetes import pod_watch, templates
from tidemark_operator.orchestrator.kubernetes.names import member
from tidemark_operator.resources.manifest.replica import UpdateStrategy

pytestmark = [pytest.mark.cluster, pytest.mark.broad]


def test_an_edit_that_is_taken_back_is_as_if_it_had_never_been(cluster: Cluster) -> None:
    """It may be taken back because the new shape does not run: what is told of the replica is told of what serves."""
    spec = cluster.replica(SMALL)
    old, new = member(spec, SETTINGS), member(replace(spec, cores=3), SETTINGS)

    async def scenario(kube: Kube) -> None:
        orchestrator = of(kube, spec)
        await until(orchestrator, lambda: f"pod/{old.name}-0" in cluster.made())
        cluster.report(f"{old.name}-0", RUNNING)
        await asyncio.sleep(1.1)  # the API server tells ages by the second
        orchestrator.ensure(new.spec)
        await until(orchestrator, lambda: f"pod/{new.name}-0" in cluster.made())
        await orchestrator.step()
        assert [each.shape for each in orchestrator.observe(spec.key)] == [old.shape, new.shape]

        orchestrator.ensure(spec)
        observation = one(orchestrator, spec)
        assert (observation.shape, observation.phase) == (old.shape, Phase.RUNNING)
        await until(orchestrator, lambda: not any(new.name in name for name in cluster.made()))
        assert f"pod/{old.name}-0" in cluster.made()

    cluster.run(scenario)


def test_an_edit_that_is_taken_back_after_the_takeover_keeps_the_serving_pod(cluster: Cluster) -> None:
    """The shape that is wanted again took over once, but has nothing of it left when it comes back."""
    spec = cluster.replica(SMALL)
    shapes = [replace(spec, cores=cores) for cores in (2, 3, 4)]
    first, second, third = (member(shape, SETTINGS).name for shape in shapes)

    async def scenario(kube: Kube) -> None:
        orchestrator = of(kube, shapes[0])
        await orchestrator.step()
        orchestrator.ensure(shapes[1])
        await orchestrator.step()
        orchestrator.take_over(spec.key)
        await until(orchestrator, lambda: f"statefulset.apps/{first}" not in cluster.made())
        orchestrator.ensure(shapes[2])
        await until(orchestrator, lambda: f"statefulset.apps/{third}" in cluster.made())

        orchestrator.take_over(spec.key)
        orchestrator.ensure(shapes[1])
        await orchestrator.step()

        there = json.loads(cluster.kubectl("get", "statefulsets", "-o", "json"))["items"]
        going = {each["metadata"]["name"]: "deletionTimestamp" in each["metadata"] for each in there}
        assert going == {second: False, third: False}
        orchestrator.take_over(spec.key)
        await until(orchestrator, lambda: f"statefulset.apps/{third}" not in cluster.made())

    cluster.run(scenario)


def test_a_new_operator_leaves_the_budget_of_running_pods(cluster: Cluster) -> None:
    """It knows what is kept before it knows in which shape; a drain in between would end all replicas at once. The
    budget goes with the last of them."""
    spec = cluster.replica(SMALL)
    asked = ("get", "poddisruptionbudgets", "-o", "jsonpath={.items[*].metadata.uid}")

    async def scenario(kube: Kube) -> None:
        await of(kube, spec).step()
        before = cluster.kubectl(*asked)
        assert before

        second = of(kube)
        second.retain([spec.key])
        await second.step()
        second.ensure(spec)
        await second.step()

        assert cluster.kubectl(*asked) == before
        second.drop(spec.key)
        await until(second, lambda: cluster.made() == [])

    cluster.run(scenario)


def test_an_instance_has_one_budget_whatever_earlier_versions_called_it(cluster: Cluster) -> None:
    """Two over one pod, and the API server refuses each eviction."""
    spec = cluster.replica(SMALL)
    earlier = templates.disruption_budget(cluster.namespace, spec.instance)
    earlier["metadata"]["name"] = f"tidemark-{spec.instance.name}"

    async def scenario(kube: Kube) -> None:
        await kube.apply(DISRUPTION_BUDGETS, earlier)
        asked = ("get", "poddisruptionbudgets", "-o", "jsonpath={.items[*].metadata.name}")
        # what is deleted is there until the garbage collector has seen it
        await until(of(kube, spec), lambda: cluster.kubectl(*asked) == f"tidemark-instance-{spec.instance.name}")

    cluster.run(scenario)


def test_the_secret_of_a_stateful_set_that_is_gone_is_not_taken_for_the_new_one_s(cluster: Cluster) -> None:
    """It would go, and the pod wait for another; so one is made as soon as the name is free."""
    spec = cluster.replica(LARGE)
    name = member(spec, SETTINGS).name
    cluster.kubectl("create", "configmap", "another")
    alive = json.loads(cluster.kubectl("get", "configmap", "another", "-o", "json"))["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "another", "uid": alive["uid"]}
    left = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "ownerReferences": [owner]}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(left))

    def uid(kind: str) -> str:
        return cluster.kubectl("get", kind, "-o", f"jsonpath={{.items[?(@.metadata.name=='{name}')].metadata.uid}}")

    async def scenario(kube: Kube) -> None:
        orchestrator = of(kube, spec)
        before = uid("secrets")
        await orchestrator.step()
        assert uid("secrets") == before
        cluster.kubectl("delete", "secret", name)
        await until(orchestrator, lambda: uid("secrets"))

        secret = json.loads(cluster.kubectl("get", "secret", name, "-o", "json"))
        assert [each["uid"] for each in secret["metadata"]["ownerReferences"]] == [uid("statefulsets")]

    cluster.run(scenario)


def test_a_lost_node_is_said_of_the_shape_that_waits_for_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recreate ends the old shape first, and nobody says that it has ended: a finalizer is in the node's place. The
    operator's time of day is an hour ahead of the API server's, and tells nothing."""
    monkeypatch.setattr(pod_watch, "time", SimpleNamespace(time=lambda: time.time() + 3600))
    now = SimpleNamespace(seconds=0.0)
    spec = cluster.replica(SMALL, strategy=UpdateStrategy.RECREATE)
    old = f"pod/{member(spec, SETTINGS).name}-0"
    larger = replace(spec, cores=3)
    new = f"pod/{member(larger, SETTINGS).name}-0"

    async def scenario(kube: Kube) -> None:
        await until(of(kube, spec), lambda: old in cluster.made())
        cluster.kubectl("patch", old, "-p", '{"metadata": {"finalizers": ["example.dev/node"]}}')
        orchestrator = of(kube, larger, clock=lambda: now.seconds)
        await until(orchestrator, lambda: "deletionTimestamp" in cluster.kubectl("get", old, "-o", "yaml"))
        await orchestrator.step()
        assert one(orchestrator, larger).problem is None

        now.seconds = 24 * 3600.0
        await orchestrator.step()
        problem = one(orchestrator, larger).problem
        assert problem is not None
        assert (problem.reason, new in cluster.made()) == ("NodeLost", False)

        cluster.kubectl("patch", old, "-p", '{"metadata": {"finalizers": null}}')
        await until(orchestrator, lambda: new in cluster.made())

    cluster.run(scenario)
