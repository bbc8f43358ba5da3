"""The time of the next look: soon while pods are on their way, for a while, and for a fifth of the time at most."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from tests.orchestrator.pods import LARGE, SETTINGS, pod, running
from tidemark_operator.kube.client import Kube
from tidemark_operator.orchestrator.kubernetes.names import member
from tidemark_operator.orchestrator.kubernetes.orchestrator import (
    LOOK_SECONDS,
    SOON_SECONDS,
    STARTING_SECONDS,
    KubernetesOrchestrator,
)

SHAPE = (LARGE.key, member(LARGE, SETTINGS).shape)


class Scene:
    """An operator that wants one replica, with two executors; by a clock of the test's. There is no API server."""

    def __init__(self) -> None:
        self.now = 0.0
        self.orchestrator = KubernetesOrchestrator(
            cast(Kube, SimpleNamespace(namespaces=())), SETTINGS, lambda: self.now
        )
        self.orchestrator.ensure(LARGE)

    def pause(self, *, failures: int = 0, took: float = 0.0) -> float:
        """After a look."""
        self.orchestrator._note_starting()
        return self.orchestrator._pause(failures, took)

    def see(self, ready: int, driver: bool = True) -> None:
        looking = self.orchestrator._pods
        looking._drivers = {SHAPE: pod(running())} if driver else {}
        looking._executors = {SHAPE: [pod(running()), pod({**running(), "ready": ready == 2})]}


def test_a_replica_on_its_way_is_looked_at_soon_until_all_of_it_is_up() -> None:
    """Its driver, and then each of its executors; again once one is lost."""
    scene = Scene()
    assert scene.pause() == SOON_SECONDS
    scene.see(ready=1)
    assert scene.pause() == SOON_SECONDS
    scene.see(ready=2)
    assert scene.pause() == LOOK_SECONDS
    scene.now += 3600.0
    scene.see(ready=1)
    assert scene.pause() == SOON_SECONDS
    scene.orchestrator.drop(LARGE.key)
    assert scene.pause() == LOOK_SECONDS


def test_a_pod_that_does_not_start_is_polled_at_the_usual_interval() -> None:
    """An image that cannot be pulled stays so for days."""
    scene = Scene()
    scene.pause()
    scene.now = STARTING_SECONDS / 2
    assert scene.pause() == SOON_SECONDS
    scene.now = STARTING_SECONDS
    assert scene.pause() == LOOK_SECONDS


def test_looks_that_take_long_or_fail_are_not_made_more_often() -> None:
    """With thousands of pods, or at an API server that is in trouble."""
    scene = Scene()
    assert scene.pause(took=0.3) == 1.2
    assert scene.pause(took=30.0) == LOOK_SECONDS
    assert scene.pause(failures=1) == 2 * LOOK_SECONDS
