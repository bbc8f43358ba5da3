"""A replica is resized while its views are read."""

from __future__ import annotations

import json
import threading

from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import reader
from tests.cluster.whole.system import EXECUTORS, System


def test_views_are_readable_throughout_a_surge(ready: System) -> None:
    """More memory is another shape: it hydrates beside the old one, which then goes, with its executors."""
    old = ready.driver()
    failed: list[str] = []
    asked = 0
    over = threading.Event()
    way = reader(ready)

    def read() -> None:
        nonlocal asked
        while not over.is_set():
            done = way.ask("SELECT * FROM regions")
            asked += 1
            if done.returncode or len(json.loads(done.stdout)["rows"]) != 5:
                failed.append(done.stderr or done.stdout)

    reading = threading.Thread(target=read)
    reading.start()
    try:
        grown = {"spec": {"resources": {"limits": {"memory": "1664Mi"}}}}
        ready.kubectl("patch", "computereplica", "r1", "--type=merge", f"--patch={json.dumps(grown)}")
        wait_for("a pod of the new shape", lambda: len(ready.drivers()) == 2, ready.explain)
        wait_for("the old shape to go", lambda: _names(ready) != {old} and len(_names(ready)) == 1, ready.explain)
        ready.wait_ready()
        so_far = asked
        wait_for("an answer of the new shape", lambda: asked > so_far + 1)
    finally:
        over.set()
        reading.join()
    assert failed == []
    assert old not in _names(ready)
    wait_for("no other executors", lambda: len(ready.executors()) == EXECUTORS, ready.explain)


def _names(system: System) -> set[str]:
    return {pod["metadata"]["name"] for pod in system.drivers()}
