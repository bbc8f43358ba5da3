"""Replicas as pods, at a real API server with a real StatefulSet controller. There is no kubelet: where a pod has to
run, or to fail, the test reports so in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.orchestrator.clusters import RUNNING, Cluster, of, one, until, with_state
from tests.orchestrator.pods import LARGE, SETTINGS, SMALL
from tidemark_operator.kube.client import Kube
from tidemark_operator.kube.objects import SERVICES, STATEFUL_SETS
from tidemark_operator.orchestrator.interface import Phase
from tidemark_operator.orchestrator.kubernetes import executors, templates
from tidemark_operator.orchestrator.kubernetes.names import member
from tidemark_operator.resources.manifest.replica import UpdateStrategy

pytestmark = pytest.mark.cluster


def test_a_replica_with_executors_has_all_that_its_pod_needs(cluster: Cluster) -> None:
    """Under PodSecurity restricted the controller makes the pod; the next operator finds it as it is."""
    spec = cluster.replica(LARGE)
    name = member(spec, SETTINGS).name

    async def scenario(kube: Kube) -> None:
        pod = f"pod/{name}-0"
        first = of(kube, spec)
        await until(first, lambda: pod in cluster.made())
        assert cluster.made() == sorted(
            [
                f"configmap/{executors.template_name(member(spec, SETTINGS), SETTINGS)}",
                pod,
                f"poddisruptionbudget.policy/tidemark-instance-i-{spec.name}",
                f"secret/{name}",
                f"service/{name}",
                f"statefulset.apps/{name}",
            ]
        )
        secret = cluster.kubectl("get", "secret", name, "-o", "json")
        cluster.report(f"{name}-0", RUNNING)
        await until(first, lambda: one(first, spec).phase is Phase.RUNNING)

        second = of(kube, spec)
        await second.adopt()
        await second.step()

        assert one(second, spec) == one(first, spec)
        assert one(second, spec).address == f"{name}.{cluster.namespace}.svc:7443"
        assert cluster.kubectl("get", "secret", name, "-o", "json") == secret

    cluster.run(scenario)


def test_crash_between_the_writes_of_a_replica_leaves_one(cluster: Cluster) -> None:
    """The operator ended after any of the writes, and the next one too."""
    spec = cluster.replica(LARGE)
    wanted = member(spec, SETTINGS)

    async def scenario(kube: Kube) -> None:
        made = await kube.apply(STATEFUL_SETS, templates.stateful_set(wanted, SETTINGS))
        await of(kube, spec).step()
        template = executors.template_name(wanted, SETTINGS)
        cluster.kubectl("delete", f"service/{wanted.name}", f"configmap/{template}")
        service, *_ = templates.belongings(wanted, SETTINGS, made["metadata"]["uid"])
        await kube.apply(SERVICES, service)
        orchestrator = of(kube, spec)
        await until(orchestrator, lambda: f"pod/{wanted.name}-0" in cluster.made())

        assert f"configmap/{template}" in cluster.made()
        assert len(await kube.list(STATEFUL_SETS)) == 1
        assert {m["metadata"]["uid"] for m in await kube.list(STATEFUL_SETS)} == {made["metadata"]["uid"]}

    cluster.run(scenario)


def test_a_dropped_replica_leaves_nothing(cluster: Cluster) -> None:
    """Also what an earlier operator made for a replica that is gone."""
    small, large = cluster.replica(SMALL), cluster.replica(LARGE)

    async def scenario(kube: Kube) -> None:
        first = of(kube, small, large)
        await until(first, lambda: sum("pod/" in name for name in cluster.made()) == 2)
        second = of(kube, small)
        kept = member(small, SETTINGS).name
        await until(second, lambda: all(kept in name or "tidemark-instance-i-r1" in name for name in cluster.made()))
        await until(second, lambda: second.observe(large.key) == ())
        second.drop(small.key)
        await until(second, lambda: cluster.made() == [])

    cluster.run(scenario)


def test_another_shape_surges_beside_the_one_that_serves(cluster: Cluster) -> None:
    """The old shape serves until the new one is told that it takes over; another operator in between finds both."""
    spec = cluster.replica(SMALL)
    larger = replace(spec, cores=3)
    old, new = member(spec, SETTINGS), member(larger, SETTINGS)

    async def scenario(kube: Kube) -> None:
        await until(of(kube, spec), lambda: f"pod/{old.name}-0" in cluster.made())
        cluster.report(f"{old.name}-0", RUNNING)
        first = of(kube, larger)
        await until(first, lambda: f"pod/{new.name}-0" in cluster.made())
        await first.step()
        assert [(o.shape, o.phase) for o in first.observe(spec.key)] == [
            (old.shape, Phase.RUNNING),
            (new.shape, Phase.STARTING),
        ]

        second = of(kube, larger)
        await second.adopt()
        assert [o.shape for o in second.observe(spec.key)] == [old.shape, new.shape]
        second.take_over(spec.key)
        assert [o.shape for o in second.observe(spec.key)] == [new.shape]
        await until(second, lambda: not any(old.name in name for name in cluster.made()))

    cluster.run(scenario)


def test_recreate_ends_the_old_shape_first(cluster: Cluster) -> None:
    """There are never pods of both."""
    spec = cluster.replica(SMALL, strategy=UpdateStrategy.RECREATE)
    larger = replace(spec, cores=3)
    old, new = member(spec, SETTINGS), member(larger, SETTINGS)

    async def scenario(kube: Kube) -> None:
        await until(of(kube, spec), lambda: f"pod/{old.name}-0" in cluster.made())
        orchestrator = of(kube, larger)

        def replaced() -> bool:
            pods = {name for name in cluster.made() if name.startswith("pod/")}
            assert pods != {f"pod/{old.name}-0", f"pod/{new.name}-0"}
            return pods == {f"pod/{new.name}-0"}

        await until(orchestrator, replaced)

    cluster.run(scenario)


def test_how_a_container_ended_is_told(cluster: Cluster) -> None:
    """An incarnation for each start; out of memory is said as such."""
    spec = cluster.replica(SMALL)
    pod = f"{member(spec, SETTINGS).name}-0"
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:01:00Z"}}

    async def scenario(kube: Kube) -> None:
        orchestrator = of(kube, spec)
        await until(orchestrator, lambda: f"pod/{pod}" in cluster.made())
        cluster.report(pod, RUNNING)
        await orchestrator.step()
        before = one(orchestrator, spec)
        cluster.report(pod, with_state({"waiting": {"reason": "CrashLoopBackOff"}}, killed, 1))
        await orchestrator.step()
        after = one(orchestrator, spec)

        assert (before.phase, before.last_exit) == (Phase.RUNNING, None)
        assert (after.phase, after.restarts) == (Phase.BACKING_OFF, 1)
        assert after.last_exit is not None
        assert after.last_exit.reason == "OOMKilled"
        assert before.incarnation != after.incarnation

        cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
        await until(orchestrator, lambda: one(orchestrator, spec).phase is Phase.STARTING)

    cluster.run(scenario)


def test_a_pod_that_must_not_be_made_says_why(cluster: Cluster) -> None:
    """Here a service account is missing; a quota, or PodSecurity, is told in the same way."""
    spec = cluster.replica(LARGE)
    cluster.kubectl("delete", "serviceaccount", SETTINGS.driver_account)

    async def scenario(kube: Kube) -> None:
        orchestrator = of(kube, spec)
        await until(orchestrator, lambda: one(orchestrator, spec).problem is not None)
        problem = one(orchestrator, spec).problem
        assert problem is not None
        assert problem.reason == "FailedCreate"
        assert f'serviceaccount "{SETTINGS.driver_account}" not found' in problem.message

    cluster.run(scenario)


def test_a_refusal_of_the_api_server_concerns_one_replica(cluster: Cluster) -> None:
    """Requests above limits; the other replica runs."""
    bad, good = cluster.replica(SMALL), cluster.replica(LARGE)
    bad = replace(bad, pod=replace(bad.pod, requests=replace(bad.pod.requests, cpu="64")))

    async def scenario(kube: Kube) -> None:
        orchestrator = of(kube, bad, good)
        await until(orchestrator, lambda: f"pod/{member(good, SETTINGS).name}-0" in cluster.made())
        problem = one(orchestrator, bad).problem

        assert problem is not None
        assert problem.reason == "Refused"
        assert "must be less than or equal to cpu limit" in problem.message

    cluster.run(scenario)
