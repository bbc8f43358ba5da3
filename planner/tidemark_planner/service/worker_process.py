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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_planner.service import worker_protocol
from tidemark_planner.service.worker_protocol import JVM_ENDED, READY

COMMAND = (sys.executable, "-m", "tidemark_planner.service.worker")
START_SECONDS = 600.0
"""A JVM starts within 5 s, and takes minutes on a busy machine: only a worker that hangs takes this long."""
_EXIT_STATUS_SECONDS = 1.0
_CPU_CHECK_SECONDS = 0.25
_PR_SET_CHILD_SUBREAPER = 36


class WorkerEnded(Exception):
    """The worker's process or its JVM ended, or closed its socket, by itself."""


class WorkerTimeout(Exception):
    """The worker did not answer in time, and is still planning. The message says which time was too short, without a
    subject."""


@dataclass(frozen=True)
class PlanLimits:
    """`cpu_seconds`: the processor time that a plan may take, of the worker and its JVM. It is the same on a busy
    machine, where a trivial plan may take seconds of waiting. `deadline`: when the answer must be there (monotonic
    seconds), which a worker that hangs misses.
    """

    cpu_seconds: float
    deadline: float

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())


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
        with self._failures_as_its_own(f"did not start within {seconds:g} s"):
            message = worker_protocol.receive(self._socket, seconds)
        if message != READY:
            raise WorkerEnded(f"it sent {message[:20]!r} instead of {READY!r} when it started")

    def ask(self, request: bytes, limits: PlanLimits) -> bytes:
        """The worker's answer. Raises WorkerTimeout or WorkerEnded; after either the worker must be killed."""
        with self._failures_as_its_own("stopped in the midst of a message"):
            worker_protocol.send(self._socket, request, max(_CPU_CHECK_SECONDS, limits.seconds_left))
            self._await_answer(limits)
            answer = worker_protocol.receive(self._socket, max(_CPU_CHECK_SECONDS, limits.seconds_left))
        self.has_answered = True
        if answer[:1] == JVM_ENDED:
            raise WorkerEnded(answer[1:].decode(errors="replace"))
        return answer

    def _await_answer(self, limits: PlanLimits) -> None:
        """Wait until an answer begins; raises WorkerTimeout."""
        began, asked_at = self._cpu_seconds(), time.monotonic()
        while not worker_protocol.has_message(self._socket, min(_CPU_CHECK_SECONDS, limits.seconds_left)):
            used = self._cpu_seconds() - began
            if used > limits.cpu_seconds:
                raise WorkerTimeout(f"took more than {limits.cpu_seconds:.0f} s of processor time: simplify the SQL")
            if not limits.seconds_left:
                raise WorkerTimeout(
                    f"got {used:.1f} s of processor time within {time.monotonic() - asked_at:.0f} s and did not end: "
                    "the machine is too busy, or the worker hangs; try again later"
                )

    def _cpu_seconds(self) -> float:
        """The processor time of the worker and its children, its JVM among them, so far."""
        return sum(map(_cpu_seconds_of, (self.pid, *_children_of(self.pid))))

    def kill(self) -> None:
        """Kill the worker and its JVM, wait for both, and remove the worker's folder."""
        with self._killing:
            if self._process.returncode is None:  # afterwards another process may have this pid
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                _reap_group(self._process.pid)
        shutil.rmtree(self._scratch, ignore_errors=True)

    @contextlib.contextmanager
    def _failures_as_its_own(self, timeout: str) -> Iterator[None]:
        """Turn failures of the socket into WorkerTimeout, with the message `timeout`, and WorkerEnded."""
        try:
            yield
        except TimeoutError:
            raise WorkerTimeout(timeout) from None
        except (EOFError, OSError) as error:
            raise WorkerEnded(self._exit_reason(error)) from None

    def _exit_reason(self, error: Exception) -> str:
        """The end of the process, as text. The process stays waitable: `kill` reaps it."""
        deadline = time.monotonic() + _EXIT_STATUS_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < deadline:
                if ended := os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                    kind = "exit status" if ended.si_code == os.CLD_EXITED else "signal"
                    return f"its process ended with {kind} {ended.si_status}"
                time.sleep(0.01)
        return f"its socket is closed: {error}"


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants, such as the JVM of a worker that died. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _children_of(pid: int) -> list[int]:
    """The pids of the children of all threads of the process; none where it has ended."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, children.read_text().split())
    return found


def _cpu_seconds_of(pid: int) -> float:
    """The processor time of the process so far, in user and in kernel mode; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _reap_group(group: int) -> None:
    """Wait for all killed processes of the group: until they end they hold memory and write files."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)
