"""Whether an executor ever came, which is asked when the JVM has died, where the API server says nothing.

What it says, and what is made of that, is in `tests/orchestrator/test_refused_executors.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.test_refused_executors import Scene
from tidemark_replica.command_loop.executors import LOOK_SECONDS, LOOK_SECONDS_MOST, Executors
from tidemark_replica.spark.executor_pods import OwnPods


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Two are wanted. There is no API server."""
    pods = OwnPods("k8s://https://127.0.0.1:1", "ns", tmp_path)
    made = Scene(Executors(pods, "a=b", 2, tmp_path / "pod.yaml"))
    made.session = made.spark
    return made


def test_one_that_came_counts_though_the_other_cannot_be_asked_for(scene: Scene) -> None:
    """Nothing is told of what nobody knows."""
    scene.spark.registered = 1
    assert scene.watch.never_came
    scene.until(lambda: not scene.watch.never_came)
    assert scene.told() == []


def test_one_that_comes_is_seen_soon_however_long_none_came(scene: Scene) -> None:
    """While the API server is asked ever more rarely: the driver may be killed by the first step that it runs."""
    watch = scene.watch
    scene.until(lambda: watch._pause == LOOK_SECONDS_MOST and not watch._looking)
    scene.spark.registered, due = 1, watch._due
    scene.now = watch._glance
    assert scene.now + LOOK_SECONDS < due
    watch.maintain()
    scene.loop.run_until(lambda: not watch.never_came)
    assert watch._due == due
