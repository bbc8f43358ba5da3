"""An API server that refuses, is overloaded, or loses its answers, under an operator that runs replicas as pods."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.orchestrator.api_faults import Faults, through_faults
from tests.orchestrator.clusters import Cluster, of, one, until
from tests.orchestrator.pods import LARGE, SETTINGS, SMALL
from tests.waiting import BOUND
from tidemark_operator.kube.client import ApiError
from tidemark_operator.orchestrator.kubernetes.executors import template_name
from tidemark_operator.orchestrator.kubernetes.names import member
from tidemark_operator.orchestrator.kubernetes.orchestrator import LOOK_SECONDS, KubernetesOrchestrator
from tidemark_operator.resources.manifest.replica import UpdateStrategy

pytestmark = [pytest.mark.cluster, pytest.mark.broad]
STATUSES = (409, 429, 500)


async def step_until(orchestrator: KubernetesOrchestrator, holds: Callable[[], bool]) -> None:
    """Steps, whatever becomes of them, until it holds."""
    while not await asyncio.to_thread(holds):
        with contextlib.suppress(ApiError):
            await orchestrator.step()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer lost"])
def test_crash_of_every_write_comes_to_the_same(cluster: Cluster, done: bool) -> None:
    """Each write fails at its first three tries, with another status each, and a third of the lists does."""
    spec = cluster.replica(LARGE)
    name = member(spec, SETTINGS).name
    rng, tries = random.Random(7), dict[str, int]()

    def fault(method: str, path: str) -> tuple[int, bool] | None:
        if method == "GET":
            return (rng.choice(STATUSES[1:]), False) if rng.random() < 0.3 else None
        at = tries[path] = tries.get(path, 0) + 1
        return (STATUSES[at - 1], done) if at <= len(STATUSES) else None

    async def scenario() -> None:
        faults = Faults(fault)
        async with through_faults(cluster.plane, cluster.namespace, faults) as kube:
            # a minute at each look: what is backed off from is due again
            orchestrator = of(kube, spec, clock=itertools.count(step=60).__next__)
            needed = {f"{kind}/{name}" for kind in ("secret", "service", "statefulset.apps")}
            needed |= {f"configmap/{template_name(member(spec, SETTINGS), SETTINGS)}"}
            needed |= {f"pod/{name}-0", f"poddisruptionbudget.policy/tidemark-instance-i-{spec.name}"}
            await step_until(orchestrator, lambda: set(cluster.made()) == needed)
            orchestrator.drop(spec.key)
            tries.clear()
            await step_until(orchestrator, lambda: cluster.made() == [])
            for status in STATUSES:
                assert any(reported.startswith(str(status)) for reported in faults.told)

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_events_that_cannot_be_listed_keep_nothing_from_being_done(cluster: Cluster) -> None:
    """Nobody knows why the pod of one replica cannot be made; the other one runs."""
    stuck, good = cluster.replica(LARGE), cluster.replica(SMALL)
    cluster.kubectl("delete", "serviceaccount", SETTINGS.driver_account)
    faults = Faults(lambda method, path: (403, False) if path.endswith("/events") else None)
    pod = f"pod/{member(good, SETTINGS).name}-0"

    async def scenario() -> None:
        async with through_faults(cluster.plane, cluster.namespace, faults) as kube:
            orchestrator = of(kube, stuck)
            await until(orchestrator, lambda: faults.told)
            orchestrator.ensure(good)
            orchestrator.retain([stuck.key, good.key])
            await until(orchestrator, lambda: pod in cluster.made())
            assert one(orchestrator, stuck).problem is None

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_a_deletion_that_is_refused_is_tried_ever_more_rarely(cluster: Cluster) -> None:
    """Looks go on as often as ever, for everything else."""
    spec = cluster.replica(SMALL)
    pod = f"pod/{member(spec, SETTINGS).name}-0"
    now, refused = SimpleNamespace(seconds=0.0), {"DELETE"}
    faults = Faults(lambda method, path: (403, False) if method in refused else None)

    async def scenario() -> None:
        async with through_faults(cluster.plane, cluster.namespace, faults) as kube:
            orchestrator = of(kube, spec, clock=lambda: now.seconds)
            await until(orchestrator, lambda: pod in cluster.made())
            orchestrator.drop(spec.key)
            for _ in range(60):
                now.seconds += LOOK_SECONDS
                await orchestrator.step()
            # after 0, 1, 2, 4, 8, 16 and 32 s; the budget goes with the StatefulSet
            assert [each for each in faults.told if "statefulsets" not in each] == []
            assert len(faults.told) == 7

            refused.clear()
            now.seconds += 60
            await until(orchestrator, lambda: cluster.made() == [])

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_a_deletion_that_is_refused_is_told_of_the_shape_that_waits_for_it(cluster: Cluster) -> None:
    """Recreate ends the old one first; nobody else says why the new one does not come."""
    spec = cluster.replica(SMALL, strategy=UpdateStrategy.RECREATE)
    old, new = member(spec, SETTINGS), member(replace(spec, cores=3), SETTINGS)
    now, refused = SimpleNamespace(seconds=0.0), {"DELETE"}
    faults = Faults(lambda method, path: (403, False) if method in refused else None)

    async def scenario() -> None:
        async with through_faults(cluster.plane, cluster.namespace, faults) as kube:
            orchestrator = of(kube, spec, clock=lambda: now.seconds)
            await until(orchestrator, lambda: f"pod/{old.name}-0" in cluster.made())
            orchestrator.ensure(new.spec)
            await orchestrator.step()
            problem = one(orchestrator, spec).problem
            assert problem is not None
            assert problem.reason == "Refused"
            assert f"StatefulSet {cluster.namespace}/{old.name} cannot be deleted: 403" in problem.message

            refused.clear()
            now.seconds += 60
            await until(orchestrator, lambda: f"pod/{new.name}-0" in cluster.made())
            assert one(orchestrator, spec).problem is None

    asyncio.run(asyncio.wait_for(scenario(), BOUND))
