"""The demo's programs, as `tidemark-devcluster status` lists them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.demo import services
from tidemark_devcluster.demo.home import DemoHome
from tidemark_devcluster.supervision import plane as supervised
from tidemark_devcluster.supervision.process import SUPERVISOR
from tidemark_devcluster.supervision.record import RestartRecord
from tidemark_devcluster.supervision.table import ProgramRow, row


def is_demo(plane: ControlPlane, home: DemoHome) -> bool:
    """Whether this control plane is that of a demo in `home`."""
    return plane.layout.root == home.plane().layout.root and home.pid_file(services.OPERATOR).parent.exists()


def rows(home: DemoHome) -> list[ProgramRow]:
    """One row for each program of the demo; without a control plane where it uses the user's."""
    restarts = RestartRecord(home.restarts)
    servers = [] if home.existing_cluster.exists() else supervised.rows(home.plane(), restarts)
    addresses = {services.OPERATOR: _gateway(home.gateway_file)}
    counts = restarts.read()
    own = [
        row(name, home.pid_file(name), counts.get(name, 0), addresses.get(name, ""), home.log(name))
        for name in (services.OPERATOR, services.FEEDER, SUPERVISOR)
    ]
    return [*servers, *own]


def compared(before: Sequence[ProgramRow], after: Sequence[ProgramRow]) -> str:
    """One line: which programs were running before, and which were started again, or for the first time."""
    was = {each.program: each for each in before}
    kinds: dict[str, list[str]] = {"found running": [], "started again": [], "started": []}
    for program in after:
        if program.pid is not None:
            old = was.get(program.program)
            same, died = old is not None and old.pid == program.pid, old is not None and (old.has_died or old.pid)
            kinds["found running" if same else "started again" if died else "started"].append(program.program)
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)


def _gateway(file: Path) -> str:
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["address"])
    except (FileNotFoundError, ValueError, KeyError):
        return ""
