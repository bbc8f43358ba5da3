"""Executors that end at once: their number is bounded, a condition has the reason, no hydrating dataflow becomes a
suspect, and they come back once the cause is gone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import reader
from tests.cluster.whole.pod_faults import Incarnations
from tests.cluster.whole.system import EXECUTORS, REPLICA, System
from tidemark_operator.orchestrator.interface import NO_EXECUTORS
from tidemark_operator.orchestrator.kubernetes.executors import FAILURES_PER_EXECUTOR, LEAST_FAILURES
from tidemark_operator.orchestrator.kubernetes.names import REPLICA as OF_REPLICA
from tidemark_operator.orchestrator.kubernetes.volumes import TEMPLATE_FILE

NAME = "r2"
MOST_LOSSES = max(LEAST_FAILURES, FAILURES_PER_EXECUTOR * EXECUTORS)


@dataclass
class Template:
    """The template of the replica's executors, in a ConfigMap. The operator puts it right every few minutes, and so it
    is broken again; `made`: the pods that were seen."""

    system: System
    name: str
    made: set[str] = field(default_factory=set)

    def broken(self) -> None:
        text = json.loads(self.system.get("configmap", self.name)["data"][TEMPLATE_FILE])
        (container,) = text["spec"]["containers"]
        if container.get("command") != ["false"]:
            container["command"] = ["false"]
            self._keep(json.dumps(text))

    def mended(self) -> None:
        text = json.loads(self.system.get("configmap", self.name)["data"][TEMPLATE_FILE])
        text["spec"]["containers"][0].pop("command", None)
        self._keep(json.dumps(text))

    def _keep(self, text: str) -> None:
        patch = json.dumps({"data": {TEMPLATE_FILE: text}})
        self.system.kubectl("patch", "configmap", self.name, "--type=merge", f"--patch={patch}")

    def is_told(self) -> str:
        """The condition says how they end."""
        self._look()
        condition = self.system.condition("computereplica", NAME, "ExecutorsReady")
        return str(condition["message"]) if condition.get("reason") == "Error" else ""

    def driver_gives_up(self) -> bool:
        self._look()
        return last_exit(self.system) == NO_EXECUTORS

    def _look(self) -> None:
        self.broken()
        self.made |= {pod["metadata"]["uid"] for pod in self.system.executors(NAME)}


def test_crash_executors_that_end_at_once_are_not_made_without_end(ready: System) -> None:
    """The replica beside it goes on unnoticed."""
    before = Incarnations.of(ready)
    ready.apply("ComputeReplica", NAME, REPLICA)
    try:
        template = Template(ready, wait_for("the template", lambda: template_of(ready), ready.explain))
        template.broken()
        ready.kubectl("delete", "pod", wait_for("its driver", lambda: driver(ready), ready.explain))
        reported = wait_for("the reason to be told", template.is_told, ready.explain)
        assert "exit code 1" in reported
        wait_for("the driver to give up", template.driver_gives_up, ready.explain)
        # some are on their way when the limit is met, and the next process may have begun
        assert len(template.made) <= MOST_LOSSES + 6 * EXECUTORS
        assert len(reader(ready).rows("SELECT * FROM regions")) == 5
        for dataflow in ready.get("dataflows")["items"]:
            assert "Quarantined" not in json.dumps(dataflow["status"]), dataflow["metadata"]["name"]

        template.mended()
        ready.kubectl("delete", "pod", driver(ready))
        ready.wait_ready(NAME)
        assert len(ready.running_executors(NAME)) == EXECUTORS
    finally:
        ready.kubectl("delete", "computereplica", NAME)
    wait_for("its pods to go", lambda: not ready.drivers(NAME) and not ready.executors(NAME), ready.explain)
    assert Incarnations.of(ready) == before


def template_of(system: System) -> str:
    found = system.get("configmaps", f"--selector={OF_REPLICA}={NAME}")["items"]
    return str(found[0]["metadata"]["name"]) if found else ""


def driver(system: System) -> str:
    found = [pod["metadata"]["name"] for pod in system.drivers(NAME)]
    return str(found[0]) if found else ""


def last_exit(system: System) -> str:
    process: dict[str, Any] = system.get("computereplica", NAME).get("status", {}).get("process", {})
    return str(process.get("lastExit", {}).get("reason", ""))
