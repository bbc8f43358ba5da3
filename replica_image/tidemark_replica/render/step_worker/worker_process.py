"""One step worker, as the driver sees it: a child process and a socket.

Spawned, never forked: the driver has threads and a JVM's pipes. It inherits nothing but its end of the socket, and a
standard input that ends when the driver does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark_replica.allocator_env import STEPS_KEEP, allocation
from tidemark_replica.render.step_worker.wire import Answer, Channel, Closed, Member, Order, Ready

COMMAND = (sys.executable, "-m", "tidemark_replica.render.step_worker")
START_SECONDS = 180.0
END_SECONDS = 5.0
# a tree that is sent again does no harm
MAX_KNOWN_TREES = 4096
_PAGE = os.sysconf("SC_PAGE_SIZE")


class WorkerGone(Exception):
    """The process is of no use any more: dead, or not answering."""


class WorkerProcess:
    """Not for several threads."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        """Starts it and waits until it is ready; raises WorkerGone."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as cause:
            raise WorkerGone(f"a step worker could not be started: {cause}") from cause
        try:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env={
                    **os.environ,
                    **allocation(STEPS_KEEP),
                    "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
                },
            )
        except OSError as cause:
            ours.close()
            raise WorkerGone(f"a step worker could not be started: {cause}") from cause
        finally:
            theirs.close()
        self._channel = Channel(ours)
        self._told: set[str] = set()
        try:
            began = self._channel.receive(START_SECONDS)
        except (Closed, TimeoutError) as cause:
            self.kill()
            raise WorkerGone(f"a step worker did not start: {cause}") from cause
        if not isinstance(began, Ready):
            self.kill()
            raise WorkerGone(f"a step worker did not start: it said {began!r}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, members: Sequence[Member], timeout: float) -> None:
        """Send members, trees only where they are new; raises WorkerGone."""
        known = tuple(
            Member(m.number, m.stage, m.description, m.key, None) if m.key in self._told else m for m in members
        )
        self._send(Order(known), timeout)
        if len(self._told) > MAX_KNOWN_TREES:
            self._told.clear()
        self._told.update(m.key for m in members)

    def answer(self, timeout: float) -> Answer | None:
        """The next answer, or None when there is none in time; raises WorkerGone."""
        try:
            answer = self._channel.receive(timeout)
        except TimeoutError:
            return None
        except Closed as cause:
            raise WorkerGone(f"step worker {self.pid} is gone: {cause}") from cause
        if not isinstance(answer, Answer):
            raise WorkerGone(f"step worker {self.pid} answers {answer!r}")
        return answer

    def forgot(self, key: str) -> None:
        """The process let go of a tree."""
        self._told.discard(key)

    @property
    def anonymous_bytes(self) -> int:
        """Memory of its own: batches that it has mapped do not count. 0 where the system does not say."""
        try:
            _, resident, shared, *_ = Path(f"/proc/{self.pid}/statm").read_text().split()
        except (OSError, ValueError):
            return 0
        return (int(resident) - int(shared)) * _PAGE

    def end(self) -> None:
        """Between two orders: let it go."""
        self._close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """In the middle of whatever it is at."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._channel.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _send(self, order: Order, timeout: float) -> None:
        try:
            self._channel.send(order, timeout)
        except (Closed, TimeoutError) as cause:
            raise WorkerGone(f"step worker {self.pid} takes no orders: {cause}") from cause
