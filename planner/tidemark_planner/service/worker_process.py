"""One worker of the planner, as the process that serves sees it: a child, its JVM, and a socket.

It has a process group of its own, so that it is ended as a whole, and a standard input that ends when this process
does, by which it ends itself. Its JVM is nobody's child once it is gone: whoever serves is to be told of such
(`adopt_orphans`), or else they would stay as zombies where it is the first process of its container.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tidemark_planner.service import framing
from tidemark_planner.service.worker_requests import READY

COMMAND = (sys.executable, "-m", "tidemark_planner.service.worker")
START_SECONDS = 600.0
"""A JVM starts in five, and takes minutes where a machine has much other work: only one that hangs gets there."""
_LAST_WORDS_SECONDS = 1.0
_PR_SET_CHILD_SUBREAPER = 36


class WorkerGone(Exception):
    """It ended by itself."""


class TookTooLong(Exception):
    """It is at it still."""


class Worker:
    """For one thread at a time; `kill` for any."""

    def __init__(self, scratch: Path, command: Sequence[str] = COMMAND) -> None:
        """Begins to start it; raises OSError. `scratch`: for its files alone."""
        scratch.mkdir(parents=True)
        self._scratch = scratch
        self._killing = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undone:
            undone.callback(self._socket.close)
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(scratch)],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                process_group=0,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
                    "TMPDIR": str(scratch),
                },
            )
            undone.pop_all()
        self.has_answered = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Of one that is asked nothing."""
        return framing.has_ended(self._socket)

    def started(self, seconds: float = START_SECONDS) -> None:
        """Once it can be asked; raises WorkerGone, TookTooLong."""
        said = self._within(seconds)
        if said != READY:
            raise WorkerGone(f"it said {said[:20]!r} when it started")

    def ask(self, question: bytes, seconds: float) -> bytes:
        """Raises TookTooLong, WorkerGone: it is of no use after either."""
        answer = self._within(seconds, question)
        self.has_answered = True
        return answer

    def kill(self) -> None:
        """At once, with its JVM, and with what it has on disk. Nothing of it is left then."""
        with self._killing:
            if self._process.returncode is None:  # else its number may be another's
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                _await_orphans(self._process.pid)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _within(self, seconds: float, question: bytes | None = None) -> bytes:
        until = time.monotonic() + seconds
        try:
            if question is not None:
                framing.send(self._socket, question, seconds)
            return framing.receive(self._socket, max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise TookTooLong(f"no answer within {seconds:g} s") from None
        except (EOFError, OSError) as error:
            raise WorkerGone(self._how(error)) from None

    def _how(self, error: Exception) -> str:
        """As far as can be told without taking its number from it: that is for `kill`."""
        until = time.monotonic() + _LAST_WORDS_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until:
                if ended := os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                    how = "exit status" if ended.si_code == os.CLD_EXITED else "signal"
                    return f"its process ended with {how} {ended.si_status}"
                time.sleep(0.01)
        return f"its socket is closed: {error}"


def adopt_orphans() -> None:
    """From here on the children of a worker that is gone are this process's."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _await_orphans(group: int) -> None:
    """Those of the group that were killed with its leader; until they are gone they hold memory, and write files."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)
