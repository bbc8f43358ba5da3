"""Queries as a user asks them, with a kubeconfig and a ServiceAccount: the command line finds the operator that leads.

EndpointSlice tidemark-gateway ─► the pod, who signed its certificate ─► kubectl port-forward ─► rows
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tests.cluster import pods
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import System

QUERY_SECONDS = 120.0
READER = "reader"
"""A ServiceAccount that may read rows."""


@dataclass(frozen=True)
class Gateway:
    """The way to it, for one ServiceAccount of the team's."""

    system: System
    account: str

    def ask(self, sql: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidemark_cli", "query", sql, "-n", self.system.team, "-o", "json"]
        command += ["--operator-namespace", self.system.home, "--service-account", self.account]
        layout = self.system.node.layout
        programs = f"{layout.kubectl.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(layout.kubeconfig), "PATH": programs}
        environment.pop("TIDEMARK_GATEWAY_FILE", None)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=QUERY_SECONDS, check=False
        )

    def rows(self, sql: str) -> list[dict[str, Any]]:
        done = self.ask(sql)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout)["rows"])


def leader(system: System) -> str:
    """The pod of the operator that holds the Lease."""

    def held() -> str:
        lease = pods.get(system.node, system.home, "lease", "tidemark-operator")
        # <pod>-<pid>-<random>
        pod = str(lease["spec"].get("holderIdentity") or "").rsplit("-", 2)[0]
        there = pods.get(system.node, system.home, "pods")["items"]
        return pod if any(each["metadata"]["name"] == pod for each in there) else ""

    return str(wait_for("somebody leads", held, system.explain))


def reader(system: System) -> Gateway:
    """For somebody to whom rows were granted."""
    return Gateway(system, READER)


def let_read(system: System, account: str) -> None:
    """`get` on dataflows/data, by a RoleBinding."""
    binding = ("create", "rolebinding", account, "--clusterrole=tidemark-read-data")
    system.kubectl(*binding, f"--serviceaccount={system.team}:{account}")
