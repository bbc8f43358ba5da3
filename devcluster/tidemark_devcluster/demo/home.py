"""Where the demo keeps what."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.control_plane.layout import link_program

# the directory that stands in examples/ for the one where data are
EXAMPLE_DATA = "/var/lib/tidemark"
_SCRIPT = """#!/bin/sh
exec "{python}" -m {module} "$@"
"""
_PROGRAMS = {
    "kubectl-tidemark": "tidemark_cli",
    "tidemark": "tidemark_cli",
    "kubectl_complete-tidemark": "tidemark_cli.kubectl_complete",
}
"""Module of each program. kubectl calls the last one to complete `kubectl tidemark`."""


@dataclass(frozen=True)
class DemoHome:
    """The demo's folder."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def gateway_file(self) -> Path:
        """Beside the kubeconfig: where the command line looks for it."""
        return self.root / "gateway.json"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def incoming(self) -> Path:
        return self.data / "incoming"

    @property
    def operator_state(self) -> Path:
        return self.root / "operator"

    @property
    def existing_cluster(self) -> Path:
        """JSON: the context and the API server of the user's cluster that this demo runs on; absent for its own."""
        return self.root / "existing-cluster.json"

    @property
    def restarts(self) -> Path:
        """The number of restarts of each program by the supervisor (supervision/record.py)."""
        return self.root / "restarts.json"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    def pid_file(self, name: str) -> Path:
        return self.root / "pids" / name

    def log(self, name: str) -> Path:
        return self.root / "log" / f"{name}.log"

    def plane(self) -> ControlPlane:
        return ControlPlane(self.root / "control-plane", self.kubeconfig)

    def make(self) -> None:
        """The folders, and the programs for PATH."""
        for name in ("pids", "log", "bin", "data/shards", "data/incoming", "operator"):
            (self.root / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, module in _PROGRAMS.items():
            script, new = self.bin / name, self.bin / f".{name}"
            new.write_text(_SCRIPT.format(python=sys.executable, module=module))
            new.chmod(0o755)
            os.replace(new, script)  # a shell may be running the one that is there

    def link_kubectl(self, binary: Path) -> None:
        """Puts kubectl beside its plugin."""
        link_program(self.bin / "kubectl", binary)
