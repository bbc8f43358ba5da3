"""One worker of the planner as its parent, the server's process, sees it: a child process, its JVM, and a socket.

The worker leads a process group of its own, so `kill` ends it as a whole. Its standard input ends when the parent does,
and the worker then ends itself. When a worker dies, its JVM becomes an orphan: the parent adopts such orphans
(`adopt_orphans`) and reaps them, or else they stay as zombies where the parent is the first process of a container.
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

from tidemark_planner.service import worker_protocol
from tidemark_planner.service.worker_protocol import READY

COMMAND = (sys.executable, "-m", "tidemark_planner.service.worker")
START_SECONDS = 600.0
"""A JVM starts within 5 s, and takes minutes on a busy machine: only a worker that hangs takes this long."""
_EXIT_STATUS_SECONDS = 1.0
_PR_SET_CHILD_SUBREAPER = 36


class WorkerEnded(Exception):
    """The worker's process ended, or closed its socket, by itself."""


class WorkerTimeout(Exception):
    """The worker did not answer in time, and is still planning."""


class Worker:
    """One thread at a time may ask; any thread may `kill`. `has_answered`: the worker has planned something."""

    def __init__(self, scratch: Path, command: Sequence[str] = COMMAND) -> None:
        """Start the process and return at once. `scratch`: a folder for this worker's files alone.

        Raises:
            OSError: the process could not be started.
        """
        scratch.mkdir(parents=True)
        self._scratch = scratch
        self._killing = threading.Lock()
        self._socket, child_socket = socket.socketpair()
        with child_socket, contextlib.ExitStack() as on_failure:
            on_failure.callback(self._socket.close)
            self._process = subprocess.Popen(
                [*command, str(child_socket.fileno()), str(scratch)],
                stdin=subprocess.PIPE,
                pass_fds=[child_socket.fileno()],
                process_group=0,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
                    "TMPDIR": str(scratch),
                },
            )
            on_failure.pop_all()
        self.has_answered = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the worker has ended; only for a worker that is idle."""
        return worker_protocol.has_ended(self._socket)

    def await_start(self, seconds: float = START_SECONDS) -> None:
        """Wait until the worker can plan; raises WorkerEnded, WorkerTimeout."""
        message = self._exchange(seconds)
        if message != READY:
            raise WorkerEnded(f"it sent {message[:20]!r} instead of {READY!r} when it started")

    def ask(self, request: bytes, seconds: float) -> bytes:
        """The worker's answer. Raises WorkerTimeout or WorkerEnded; after either the worker must be killed."""
        answer = self._exchange(seconds, request)
        self.has_answered = True
        return answer

    def kill(self) -> None:
        """Kill the worker and its JVM, wait for both, and remove the worker's folder."""
        with self._killing:
            if self._process.returncode is None:  # afterwards another process may have this pid
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                _reap_group(self._process.pid)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _exchange(self, seconds: float, request: bytes | None = None) -> bytes:
        deadline = time.monotonic() + seconds
        try:
            if request is not None:
                worker_protocol.send(self._socket, request, seconds)
            return worker_protocol.receive(self._socket, max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise WorkerTimeout(f"no answer within {seconds:g} s") from None
        except (EOFError, OSError) as error:
            raise WorkerEnded(self._exit_reason(error)) from None

    def _exit_reason(self, error: Exception) -> str:
        """How the process ended. The process stays waitable: `kill` reaps it."""
        deadline = time.monotonic() + _EXIT_STATUS_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < deadline:
                if ended := os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                    kind = "exit status" if ended.si_code == os.CLD_EXITED else "signal"
                    return f"its process ended with {kind} {ended.si_status}"
                time.sleep(0.01)
        return f"its socket is closed: {error}"


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants, such as the JVM of a worker that died."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _reap_group(group: int) -> None:
    """Wait for all killed processes of the group: until they end they hold memory and write files."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)
