"""The supervisor's own process: detached, on record by a pid file, with a log of bounded size."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path

from tidemark_devcluster.control_plane import processes
from tidemark_devcluster.supervision.record import RestartRecord
from tidemark_devcluster.supervision.supervisor import Group, Supervisor

SUPERVISOR = "supervisor"
LOG_BYTES = 1 << 20
STOP_SECONDS = 20.0


def start(arguments: Sequence[str], folder: Path, log: Path, pid_file: Path, record: RestartRecord) -> bool:
    """Start `python ARGUMENTS` as a supervisor unless one runs; returns whether it was started."""
    if processes.running(pid_file) is not None:
        return False
    record.clear()
    command = [sys.executable, *arguments]
    processes.start(command, os.environ, folder, log, pid_file, die_with_starter=False)
    return True


def stop(pid_file: Path) -> None:
    """End the supervisor, if one runs; what it supervises runs on."""
    if (identity := processes.running(pid_file)) is not None:
        processes.stop(identity, STOP_SECONDS)
    pid_file.unlink(missing_ok=True)


def supervise(groups: Sequence[Group], record: RestartRecord, log: Path) -> None:
    """Supervise until SIGTERM or SIGINT. A repair that has begun is completed first."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        handlers=[RotatingFileHandler(log, maxBytes=LOG_BYTES, backupCount=1)],
    )
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    Supervisor(groups, record).run(ended)
