"""Spark's own scheduler at a real API server: it requests executors as told, and no more.

There is no kubelet: executors wait for a node.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.waiting import wait_for
from tests.orchestrator.clusters import Cluster
from tests.orchestrator.pods import LARGE, SETTINGS
from tests.orchestrator.test_orphaned_executors import account, labels
from tests.orchestrator.test_refused_executors import limit
from tests.waiting import BOUND
from tidemark_operator.orchestrator.kubernetes.executors import POD_SETTINGS, pod_template, spark_conf, template_text
from tidemark_operator.orchestrator.kubernetes.names import ReplicaShape, member

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(3600), pytest.mark.broad]
MINE = member(LARGE, SETTINGS)
FAILURES = 40
"""After so many Spark gives up."""
REFUSED = 'pods "try-'
"""The beginning of the API server's answer to a dry run; its answer to Spark names an executor."""
DRIVER = """
import json, sys, time
from pathlib import Path
from tidemark_replica.command_loop.executors import Executors
from tidemark_replica.spark.executor_pods import ExecutorPods
from tidemark_replica.spark.session import start_spark

told = json.loads(sys.argv[1])
folder = Path(told["folder"])
pods = ExecutorPods(told["master"], told["namespace"], folder)
executors = Executors(pods, told["labels"], 2, folder / "pod.yaml")
executors.prepare()
spark = start_spark(told["master"], "512m", folder, told["conf"].items())
print("started", flush=True)
while True:
    state = executors.observe(spark)
    print(state.refused.message if state.refused else "admitted", flush=True)
    time.sleep(0.5)
"""


def conf(cluster: Cluster, folder: Path, server: str, of: ReplicaShape) -> dict[str, str]:
    """The options of a driver, but that it runs here, and reads its rights and the secret from this folder."""
    (folder / "secret").write_text("x" * 32)
    asked = {name: value for name, value in spark_conf(of, SETTINGS).items() if name not in POD_SETTINGS}
    rights = "spark.kubernetes.authenticate"
    return asked | {
        "spark.kubernetes.namespace": cluster.namespace,
        f"{rights}.oauthTokenFile": str(folder / "token"),
        f"{rights}.caCertFile": str(folder / "ca.crt"),
        "spark.kubernetes.executor.podTemplateFile": str(folder / "pod.yaml"),
        "spark.authenticate.secret.file": str(folder / "secret"),
        "spark.executor.maxNumFailures": str(FAILURES),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": "0",
        "spark.driver.blockManager.port": "0",
    }


def executors(cluster: Cluster) -> list[dict[str, Any]]:
    found = json.loads(cluster.kubectl("get", "pods", "-l", labels(MINE), "-o", "json"))
    return [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]


def test_a_driver_keeps_its_executors_until_more_are_admitted(cluster: Cluster, tmp_path: Path) -> None:
    """The dry run tries the pod that Spark makes. One of two executors is lost and refused: the driver goes on with the
    other, for longer than Spark, which asks every second, would bear it; and has two again when there may be."""
    (tmp_path / "pod.yaml").write_text(template_text(MINE, SETTINGS))
    server = account(cluster, tmp_path, "create", "get", "list", "watch", "delete", "deletecollection")
    settings = {"folder": str(tmp_path), "master": f"k8s://{server}", "namespace": cluster.namespace}
    settings |= {"labels": labels(MINE), "conf": conf(cluster, tmp_path, server, MINE)}
    log = tmp_path / "log"
    command = [sys.executable, "-c", DRIVER, json.dumps(settings)]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as driver:
        try:
            wait_for("two executors", lambda: _is_alive(driver, log) and len(executors(cluster)) == 2)
            (tried,) = pod_template(MINE, SETTINGS)["spec"]["containers"]
            for pod in executors(cluster):
                (made,) = pod["spec"]["containers"]
                assert (made["image"], made["resources"]) == (tried["image"], _as_read(tried["resources"]))
            wait_for("Spark", lambda: _is_alive(driver, log) and "started" in log.read_text())

            limit(cluster)
            lost = executors(cluster)[0]["metadata"]["name"]
            cluster.kubectl("delete", "pod", lost, "--force", "--grace-period=0")
            wait_for("refusals", lambda: _is_alive(driver, log) and log.read_text().count(REFUSED) > 3 * FAILURES)
            assert len(executors(cluster)) == 1

            limit(cluster, "8")
            wait_for("the other", lambda: _is_alive(driver, log) and len(executors(cluster)) == 2)
        finally:
            driver.kill()
            driver.wait(BOUND)


def _is_alive(driver: subprocess.Popen[bytes], log: Path) -> bool:
    assert driver.poll() is None, log.read_text()[-5000:]
    return True


def _as_read(resources: dict[str, Any]) -> dict[str, Any]:
    """The object with quantities as the API server writes them: 6144Mi is 6Gi."""
    gib = {amount: f"{int(amount.removesuffix('Mi')) // 1024}Gi" for amount in [resources["limits"]["memory"]]}
    return {of: {n: gib.get(v, v) for n, v in amounts.items()} for of, amounts in resources.items()}
