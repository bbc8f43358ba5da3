"""The question whether an executor ever came: asked when the JVM has died, while the API server does not answer.

Its answer, and what is made of that, is in `tests/orchestrator/test_refused_executors.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.test_refused_executors import Scene
from tidemark_replica.command_loop.executors import POLL_SECONDS, POLL_SECONDS_MAX, Executors
from tidemark_replica.spark.executor_pods import ExecutorPods


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Two are wanted. There is no API server."""
    pods = ExecutorPods("k8s://https://127.0.0.1:1", "ns", tmp_path)
    made = Scene(Executors(pods, "a=b", 2, tmp_path / "pod.yaml"))
    made.session = made.spark
    return made


def test_one_that_came_counts_though_the_other_cannot_be_asked_for(scene: Scene) -> None:
    """Nothing is told of what nobody knows."""
    scene.spark.registered = 1
    assert scene.watch.never_registered
    scene.until(lambda: not scene.watch.never_registered)
    assert scene.told() == []


def test_one_that_comes_is_seen_soon_however_long_none_came(scene: Scene) -> None:
    """While the API server is asked ever more rarely: the driver may be killed by the first step that it runs."""
    watch = scene.watch
    scene.until(lambda: watch._pause == POLL_SECONDS_MAX and not watch._polling)
    scene.spark.registered, due = 1, watch._due
    scene.now = watch._next_count
    assert scene.now + POLL_SECONDS < due
    watch.maintain()
    scene.loop.run_until(lambda: not watch.never_registered)
    assert watch._due == due
