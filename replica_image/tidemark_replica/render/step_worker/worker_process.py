"""One step worker, as the driver sees it: a child process and a socket.

The process is spawned, not forked: the driver has threads and a JVM's pipes. It inherits its end of the socket, and a
standard input that ends when the driver does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark_replica.allocator_env import STEP_KEPT_BYTES, allocator_env
from tidemark_replica.render.step_worker.wire import Answer, Channel, Closed, Member, Order, Ready

COMMAND = (sys.executable, "-m", "tidemark_replica.render.step_worker")
START_SECONDS = 180.0
END_SECONDS = 5.0
# sending a tree again does no harm
MAX_KNOWN_TREES = 4096
_PAGE = os.sysconf("SC_PAGE_SIZE")


class WorkerGone(Exception):
    """The process cannot be used any more: it has ended, or does not answer."""


class WorkerProcess:
    """Not for several threads."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        """Start the process and wait until it is ready. Raises WorkerGone."""
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
                    **allocator_env(STEP_KEPT_BYTES),
                    "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
                },
            )
        except OSError as cause:
            ours.close()
            raise WorkerGone(f"a step worker could not be started: {cause}") from cause
        finally:
            theirs.close()
        self._channel = Channel(ours)
        self._known_trees: set[str] = set()
        try:
            began = self._channel.receive(START_SECONDS)
        except (Closed, TimeoutError) as cause:
            self.kill()
            raise WorkerGone(f"a step worker did not start: {cause}") from cause
        if not isinstance(began, Ready):
            self.kill()
            raise WorkerGone(f"a step worker did not start: its first message was {began!r}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, members: Sequence[Member], timeout: float) -> None:
        """Send members within `timeout` seconds, with the trees that the process does not have. Raises WorkerGone."""
        known = tuple(
            Member(m.number, m.stage, m.description, m.key, None) if m.key in self._known_trees else m for m in members
        )
        self._send(Order(known), timeout)
        if len(self._known_trees) > MAX_KNOWN_TREES:
            self._known_trees.clear()
        self._known_trees.update(m.key for m in members)

    def answer(self, timeout: float) -> Answer | None:
        """The next answer; None if none comes within `timeout` seconds. Raises WorkerGone."""
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
        """Note that the process no longer has a tree."""
        self._known_trees.discard(key)

    @property
    def anonymous_bytes(self) -> int:
        """Resident bytes without shared mappings, so without mapped batches; 0 if the system does not tell."""
        try:
            _, resident, shared, *_ = Path(f"/proc/{self.pid}/statm").read_text().split()
        except (OSError, ValueError):
            return 0
        return (int(resident) - int(shared)) * _PAGE

    def end(self) -> None:
        """End the process between two orders."""
        self._close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process, whatever it runs."""
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
            raise WorkerGone(f"step worker {self.pid} could not be sent an order: {cause}") from cause
