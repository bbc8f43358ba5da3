"""helm against a node."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chart.render import ROOT
from tidemark_devcluster.node.cluster import OneNode

CHART = ROOT / "helm" / "tidemark"
WAIT_SECONDS = 600


@dataclass(frozen=True)
class Helm:
    """The program, and the node that it speaks to."""

    program: Path
    node: OneNode
    home: Path

    def run(self, *arguments: str) -> str:
        folders = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        answer = subprocess.run(
            [str(self.program), *arguments, f"--kubeconfig={self.node.layout.kubeconfig}"],
            env={"PATH": os.defpath, "HOME": str(self.home), **folders},
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS + 60,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def install(self, namespace: str, *settings: str) -> str:
        """Install the chart of this checkout, and wait until all its pods are ready. The definitions of an earlier
        release, in another namespace, become this one's."""
        return self._release("install", namespace, settings, "--take-ownership")

    def upgrade(self, namespace: str, *settings: str) -> str:
        return self._release("upgrade", namespace, settings)

    def _release(self, command: str, namespace: str, settings: Sequence[str], *options: str) -> str:
        options = (*options, "--wait", f"--timeout={WAIT_SECONDS}s", *(f"--set={setting}" for setting in settings))
        return self.run(command, "tidemark", str(CHART), "-n", namespace, *options)

    def uninstall(self, namespace: str) -> None:
        self.run("uninstall", "tidemark", "-n", namespace, "--wait")
