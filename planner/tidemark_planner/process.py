"""One worker of the planner, as the process that serves sees it: a child, its JVM, and a socket.

It has a process group of its own, so that it is ended as a whole, and a standard input that ends when this process
does, by which it ends itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from tidemark_planner.questions import READY

COMMAND = (sys.executable, "-m", "tidemark_planner.worker")
START_SECONDS = 1800.0
"""A JVM starts in five, and takes minutes where a machine has much other work: only one that hangs gets there."""


class WorkerGone(Exception):
    """It ended by itself."""


class TookTooLong(Exception):
    """It is at it still."""


class Worker:
    """For one thread at a time; `kill` for any."""

    def __init__(self, scratch: Path, command: Sequence[str] = COMMAND) -> None:
        """Begins to start it. `scratch`: for its files alone."""
        self._scratch = scratch
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(scratch)],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                process_group=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
            )
        self._connection = Connection(ours.detach())

    @property
    def pid(self) -> int:
        return self._process.pid

    def started(self, seconds: float = START_SECONDS) -> None:
        """Once it can be asked; raises WorkerGone, TookTooLong."""
        said = self._receive(seconds)
        if said != READY:
            raise WorkerGone(f"it said {said[:20]!r} when it started")

    def ask(self, question: bytes, seconds: float) -> bytes:
        """Raises TookTooLong, WorkerGone: it is of no use after either."""
        try:
            self._connection.send_bytes(question)
        except OSError as error:
            raise WorkerGone(self._how(error)) from None
        return self._receive(seconds)

    def kill(self) -> None:
        """At once, with its JVM, and with what it has on disk."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _receive(self, seconds: float) -> bytes:
        try:
            if not self._connection.poll(seconds):
                raise TookTooLong(f"no answer within {seconds:g} s")
            return self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise WorkerGone(self._how(error)) from None

    def _how(self, error: Exception) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return f"its process ended with exit status {self._process.wait(timeout=1.0)}"
        return f"its socket is closed: {error}"
