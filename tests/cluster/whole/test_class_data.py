"""The archive of classes is mapped by every JVM there is: by the replica's driver, its executors, and the planner."""

from __future__ import annotations

from tests.cluster.whole.planner import planner_pods
from tests.cluster.whole.pod_faults import with_class_data
from tests.cluster.whole.system import EXECUTORS, System


def test_every_jvm_takes_its_classes_out_of_the_archive(ready: System) -> None:
    """The option on a command line alone would say nothing."""
    where = [(ready.team, ready.driver()), *((ready.team, name) for name in ready.running_executors())]
    where += [(ready.home, pod["metadata"]["name"]) for pod in planner_pods(ready)]
    assert len(where) == 1 + EXECUTORS + 1
    for namespace, pod in where:
        found = with_class_data(ready, namespace, pod)
        assert found, f"{pod} has no JVM"
        assert all(found.values()), f"{pod}: {found}"
