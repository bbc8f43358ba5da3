"""Queries as a user asks them, through the gateway of the operator that leads."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import pods
from tests.cluster.forward import forwarded
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import System

QUERY_SECONDS = 120.0


@dataclass(frozen=True)
class Gateway:
    """The way to it, as a file that the command line reads."""

    file: Path
    team: str

    def ask(self, sql: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidemark_cli", "query", sql, "-n", self.team, "-o", "json"]
        command += ["--gateway-file", str(self.file), *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=False)

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


@contextmanager
def gateway(system: System) -> Iterator[Gateway]:
    """As long as the same operator leads. By its own token, unless asked with another."""
    pod = leader(system)

    def said(file: str) -> str:
        return system.node.kubectl("exec", "-n", system.home, pod, "--", "cat", file)

    there = json.loads(said("/state/gateway.json"))
    with (
        tempfile.TemporaryDirectory() as folder,
        forwarded(system.node, system.home, f"pod/{pod}", int(there["address"].rpartition(":")[2])) as port,
    ):
        token, file = Path(folder) / "token", Path(folder) / "gateway.json"
        token.write_text(said(there["tokenFile"]))
        file.write_text(json.dumps({"address": f"127.0.0.1:{port}", "tokenFile": str(token)}))
        yield Gateway(file, system.team)
