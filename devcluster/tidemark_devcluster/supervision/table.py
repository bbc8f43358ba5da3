"""The table that `tidemark-devcluster status` prints: one row for each program."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.control_plane import processes

_HEAD = ("PROGRAM", "PID", "SINCE", "RESTARTS", "ADDRESS", "LOG")


@dataclass(frozen=True)
class ProgramRow:
    """One program: its pid and the time of its start (seconds since 1970), None while it does not run; how often it was
    restarted; where it listens, empty where it does not. `has_died`: it was started, and ended though nobody stopped
    it."""

    program: str
    pid: int | None
    has_died: bool
    since: float | None
    restarts: int
    address: str
    log: str


def row(program: str, pid_file: Path, restarts: int, address: str, log: Path) -> ProgramRow:
    """The row of a program with this pid file."""
    identity = processes.running(pid_file)
    pid, since = (identity.pid, processes.started_at(identity)) if identity else (None, None)
    return ProgramRow(program, pid, identity is None and pid_file.exists(), since, restarts, address, str(log))


def text(rows: Sequence[ProgramRow]) -> str:
    """Columns, with a head."""
    cells = [_HEAD, *(_cells(each) for each in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def _cells(of: ProgramRow) -> tuple[str, ...]:
    since = "-" if of.since is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(of.since))
    log = os.path.relpath(of.log) if Path(of.log).is_relative_to(Path.cwd()) else of.log
    return (
        of.program,
        str(of.pid or ("died" if of.has_died else "stopped")),
        since,
        str(of.restarts),
        of.address or "-",
        log,
    )
