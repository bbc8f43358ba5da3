"""A control plane as a supervised group."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_devcluster.control_plane.commands import APISERVER, ETCD, SERVERS
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.control_plane.start import StartOptions, server_url
from tidemark_devcluster.programs import recipe
from tidemark_devcluster.programs.build import ensure_binaries
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_devcluster.supervision import process
from tidemark_devcluster.supervision.process import SUPERVISOR
from tidemark_devcluster.supervision.record import RestartRecord
from tidemark_devcluster.supervision.table import ProgramRow, row


@dataclass(frozen=True)
class PlaneGroup:
    """The servers of one state folder."""

    plane: ControlPlane
    durable: bool = True

    def died(self) -> Sequence[str]:
        return self.plane.died()

    def repair(self) -> Sequence[str]:
        """Start what has died, on the same data and port. Raises DevClusterError."""
        binaries = ensure_binaries(os.environ, ProgressOutput(sys.stderr), recipe.API_SERVER_PROGRAMS)
        return self.plane.up(binaries, StartOptions(durable=self.durable))


def record_of(plane: ControlPlane) -> RestartRecord:
    return RestartRecord(plane.layout.restarts)


def start_supervisor(plane: ControlPlane, *, durable: bool) -> None:
    """Have a process of its own supervise this control plane, unless one does."""
    layout = plane.layout
    words = ["-m", "tidemark_devcluster", "supervise", "--state", str(layout.root)]
    words += ["--kubeconfig", str(layout.kubeconfig), *([] if durable else ["--no-fsync"])]
    process.start(words, layout.root, layout.log(SUPERVISOR), layout.pid_file(SUPERVISOR), record_of(plane))


def rows(plane: ControlPlane, restarts: RestartRecord) -> list[ProgramRow]:
    """The rows of the servers."""
    layout, port, counts = plane.layout, plane.layout.stored_port(), restarts.read()
    addresses = {ETCD: f"unix:{layout.root / 'etcd.sock'}", APISERVER: server_url(port) if port else ""}
    return [
        row(name, layout.pid_file(name), counts.get(name, 0), addresses.get(name, ""), layout.log(name))
        for name in SERVERS
    ]


def all_rows(plane: ControlPlane) -> list[ProgramRow]:
    """The rows of the servers, and of the supervisor that `tidemark-devcluster up` starts."""
    layout = plane.layout
    mine = row(SUPERVISOR, layout.pid_file(SUPERVISOR), 0, "", layout.log(SUPERVISOR))
    return [*rows(plane, record_of(plane)), mine]
