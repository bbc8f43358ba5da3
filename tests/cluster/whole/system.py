"""The chart installed for a namespace whose instance is in the object store, driven by kubectl alone.

namespace home   operator (two), planner                helm
namespace team   ComputeInstance, r1: a driver and two executors, Dataflows
node             a folder that the pods of r1 share, as a claim of many writers would be
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import pods
from tests.cluster.forward import forwarded
from tests.cluster.helm import Helm
from tests.cluster.object_store import NAMESPACE as STORE_NAMESPACE
from tests.cluster.object_store import PORT as STORE_PORT
from tests.cluster.object_store import ObjectStore
from tests.cluster.waiting import wait_for
from tests.e2e.oracle import by_duckdb, expanded, rows_of
from tidemark_devcluster.node.cluster import OneNode
from tidemark_devcluster.node.node_layout import INSIDE
from tidemark_persist import open_shard

EXAMPLES = Path(__file__).parents[3] / "examples"
USER = 65532
"""Whom the pods of replicas run as."""
EXECUTORS = 2
SCRATCH = "scratch"
CREDENTIALS = "bucket"
GROUP = "compute.tidemark.dev"
SMALL = {"limits": {"cpu": 1, "memory": "1536Mi"}, "requests": {"cpu": "200m", "memory": "1Gi"}}
REPLICA: dict[str, Any] = {
    "instance": "default",
    "resources": SMALL,
    "executors": {
        "instances": EXECUTORS,
        "resources": {"limits": {"cpu": 1, "memory": "1280Mi"}, "requests": {"cpu": "100m"}},
    },
    "scratch": {"size": "2Gi", "claimName": SCRATCH},
}


@dataclass(frozen=True)
class System:
    """A release, and one namespace that it looks after."""

    node: OneNode
    helm: Helm
    store: ObjectStore
    home: str
    team: str
    root: str = ""
    """The folder of the bucket in which the team's instance keeps its tables; a folder of the team's name, unless
    told."""

    # --- what users do ---

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.node.kubectl("-n", self.team, *arguments, stdin=stdin)

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(body))

    def example(self, name: str) -> None:
        """Applies one of examples/; of TPC-H a tenth, so that all of it is soon read by a test."""
        text = (EXAMPLES / name).read_text().replace("scaleFactor: 0.01", "scaleFactor: 0.001")
        self.kubectl("apply", "--filename=-", stdin=text)

    def get(self, *which: str) -> Any:
        return json.loads(self.kubectl("get", *which, "--output=json"))

    # --- what is said of them ---

    def condition(self, kind: str, name: str, type_: str) -> dict[str, Any]:
        """The condition, if it is about the resource as it is now; else nothing."""
        body = self.get(kind, name)
        for condition in body.get("status", {}).get("conditions", []):
            if condition["type"] == type_ and condition["observedGeneration"] == body["metadata"]["generation"]:
                return dict(condition)
        return {}

    def wait_condition(self, kind: str, name: str, type_: str, status: str = "True", reason: str = "") -> str:
        """Waits for the condition and returns its message."""

        def holds() -> dict[str, Any] | None:
            found = self.condition(kind, name, type_)
            return found if found.get("status") == status and reason in ("", found["reason"]) else None

        return str(wait_for(f"{kind}/{name} {type_}={status}", holds, self.explain)["message"])

    def wait_ready(self, replica: str = "r1") -> None:
        """Online, everything hydrated, all executors there."""
        for condition in ("Online", "Ready", "UpToDate", "ExecutorsReady"):
            self.wait_condition("computereplica", replica, condition)

    def frontier(self, dataflow: str) -> int:
        """The write frontier in its status; -1 where there is none yet."""
        return int(self.get("dataflow", dataflow)["status"].get("writeFrontier", {}).get("time", -1))

    def wait_progress(self, *dataflows: str) -> None:
        """Each gets beyond where it is now."""
        for name, before in [(name, self.frontier(name)) for name in dataflows]:
            wait_for(f"{name} beyond {before}", lambda n=name, b=before: self.frontier(n) > b, self.explain)

    def explain(self) -> str:
        """All that there is to say, for a failed test."""
        everything = ("get", "computeinstances,computereplicas,datasources,dataflows", "--output=wide")
        output = [
            self.kubectl(*everything),
            self.kubectl("get", "pods", "--output=wide"),
            self.kubectl("events")[-3000:],
        ]
        statuses = [body.get("status") for body in self.get("computereplicas,dataflows")["items"]]
        output.append(json.dumps(statuses, indent=1)[-6000:])
        for pod in [*self.drivers(), *pods.get(self.node, self.home, "pods")["items"]]:
            at = ("-n", pod["metadata"]["namespace"], pod["metadata"]["name"])
            output.append(f"--- {at[1]}/{at[2]}\n{self.node.kubectl('logs', *at, '--tail=40')}")
        return "\n".join(output)

    # --- pods ---

    def drivers(self, replica: str = "r1") -> list[dict[str, Any]]:
        return self._pods("driver", replica)

    def executors(self, replica: str = "r1") -> list[dict[str, Any]]:
        return self._pods("executor", replica)

    def running_executors(self, replica: str = "r1") -> dict[str, str]:
        """The names of those that run and are not told to end, and their uids."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.executors(replica)
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    def driver(self) -> str:
        """The name of the only one."""
        (pod,) = self.drivers()
        return str(pod["metadata"]["name"])

    def _pods(self, role: str, replica: str) -> list[dict[str, Any]]:
        selector = f"--selector={GROUP}/role={role},{GROUP}/replica={replica}"
        return list(self.get("pods", selector)["items"])

    # --- answers ---

    def right_at_a_new_frontier(self, view: str, sql: str, *tables: str, columns: Sequence[str] = ()) -> None:
        """Gets further than it is, and holds there what DuckDB makes of the tables at the same time.

        `view`: a Dataflow, or DATAFLOW.EXPORT; `columns`: those of it that the statement has, unless all."""
        dataflow, _, part = view.partition(".")
        self.wait_progress(dataflow)
        at = self.frontier(dataflow) - 1
        with self.tables() as contents:
            inputs = {f"tpch.{table}": expanded(contents("tpch", table, at)) for table in tables}
            there = expanded(contents(dataflow, part or dataflow, at))
            held = rows_of(there.select(columns) if columns else there)
        expected = by_duckdb(sql, inputs)
        assert held == expected
        assert expected

    @property
    def location(self) -> str:
        """`storage.location` of the team's instance."""
        return self.store.location(self.root or self.team)

    def shard(self, name: str, part: str, version: int = 1) -> str:
        return f"{self.location}/{self.team}/{name}/{part}/v{version}"

    @contextmanager
    def tables(self) -> Iterator[Any]:
        """A function that reads a shard's contents as of a time, out of the object store."""
        with self.bucket() as settings:
            yield lambda name, part, at: open_shard(self.shard(name, part), settings).snapshot(at)

    @contextmanager
    def bucket(self) -> Iterator[dict[str, str]]:
        """The object store's settings, for who reads it from outside."""
        with forwarded(self.node, STORE_NAMESPACE, "service/s3", STORE_PORT) as port:
            yield {**self.store.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}


def shared_folder(node: OneNode, namespace: str) -> list[dict[str, Any]]:
    """A folder of the node's as a claim that many may write to, which `restricted` admits."""
    path = Path("var") / "shared" / namespace
    (node.place.root / path).mkdir(parents=True, mode=0o770)
    os.chown(node.place.root / path, USER, USER)
    common = {"storageClassName": "", "accessModes": ["ReadWriteMany"]}
    volume = {
        **common,
        "capacity": {"storage": "20Gi"},
        "hostPath": {"path": str(INSIDE / path), "type": "Directory"},
        "claimRef": {"namespace": namespace, "name": SCRATCH},
    }
    claim = {**common, "volumeName": f"{SCRATCH}-{namespace}", "resources": {"requests": {"storage": "20Gi"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{SCRATCH}-{namespace}"},
            "spec": volume,
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": SCRATCH}, "spec": claim},
    ]
