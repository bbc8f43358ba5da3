"""One step worker, as the driver sees it: a child process and a connection.

The process is spawned, not forked: the driver has threads and a JVM's pipes. It inherits its end of the connection, and
a standard input that ends when the driver does.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from tidemark_replica.allocator_env import STEP_KEPT_BYTES, allocator_env
from tidemark_replica.render.step_worker.wire import MAX_TREES, Ready, StageAnswer, StageRequest

COMMAND = (sys.executable, "-m", "tidemark_replica.render.step_worker")
START_SECONDS = 180.0
TRANSFER_SECONDS = 60
"""The time for one transfer of a message, once it has begun: a stopped process holds up no thread for longer."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class WorkerGone(Exception):
    """The process cannot be used any more: it has ended, or does not answer."""


class WorkerProcess:
    """The process of a step worker, for one thread at a time."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        """Start the process and wait until it is ready. Raises WorkerGone."""
        try:
            self._connection, theirs = Pipe()
        except OSError as cause:
            raise WorkerGone(f"a step worker could not be started: {cause}") from cause
        _limit_transfers(self._connection.fileno())
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
            self._connection.close()
            raise WorkerGone(f"a step worker could not be started: {cause}") from cause
        finally:
            theirs.close()
        self._known_trees: set[str] = set()
        try:
            began = self._receive(START_SECONDS)
        except WorkerGone as cause:
            self.kill()
            raise WorkerGone(f"a step worker did not start: {cause}") from cause
        if not isinstance(began, Ready):
            self.kill()
            raise WorkerGone(f"a step worker did not start: its first message was {began!r}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, member: StageRequest) -> None:
        """Send a member, with its tree if the process does not have it. Raises WorkerGone."""
        if member.key in self._known_trees:
            member = replace(member, tree=None)
        elif len(self._known_trees) == MAX_TREES:
            self._known_trees.clear()
        try:
            self._connection.send(member)
        except OSError as cause:
            raise WorkerGone(f"step worker {self.pid} could not be sent a member: {cause}") from cause
        self._known_trees.add(member.key)

    def answer(self, timeout: float) -> StageAnswer | None:
        """The answer; None if it does not come within `timeout` seconds. Raises WorkerGone."""
        answer = self._receive(timeout)
        if answer is not None and not isinstance(answer, StageAnswer):
            raise WorkerGone(f"step worker {self.pid} answers {answer!r}")
        return answer

    @property
    def anonymous_bytes(self) -> int:
        """Resident bytes without shared mappings, so without mapped batches; 0 if the system does not tell."""
        try:
            _, resident, shared, *_ = Path(f"/proc/{self.pid}/statm").read_text().split()
        except (OSError, ValueError):
            return 0
        return (int(resident) - int(shared)) * _PAGE

    def kill(self) -> None:
        """Kill the process, whatever it runs."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _receive(self, timeout: float) -> Any:
        """The next message; None if none comes within `timeout` seconds. Raises WorkerGone."""
        try:
            return self._connection.recv() if self._connection.poll(timeout) else None
        except Exception as cause:  # any error may come: unpickling runs code of the message's classes
            raise WorkerGone(f"step worker {self.pid} is gone: {cause!r}") from cause


def _limit_transfers(connection: int) -> None:
    """Have the system end a read or write of the connection that makes no progress for TRANSFER_SECONDS."""
    limit = struct.pack("ll", TRANSFER_SECONDS, 0)
    with socket.socket(fileno=os.dup(connection)) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
