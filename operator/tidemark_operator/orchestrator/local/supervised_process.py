"""One supervised process: the wanted shape, the running process, and the next step between them.

    wanted ──┬─ nothing runs ─────────► start (after a back-off that doubles from 1 to 60 s)
             ├─ runs in another shape ► stop, then start
             └─ runs ────────────────► nothing; after a minute the back-off is reset
    not wanted ── stop ── remove the home

Stopping is SIGTERM to the leader, then, after a grace period, SIGKILL to every process of the session. Pid and start
time identify the leader, so no other process gets a signal. `step` never blocks; its caller repeats it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidemark_operator.orchestrator.interface import Exit, Observation, Phase
from tidemark_operator.orchestrator.local.launch import LOCK_TAKEN
from tidemark_operator.orchestrator.local.process_record import Attempts, Home, Record
from tidemark_operator.process_liveness import is_running, session_members, signal_session

GRACE_MS = 10_000
HEALTHY_AFTER_MS = 60_000
FIRST_BACKOFF_MS = 1_000
MAX_BACKOFF_MS = 60_000
_LAUNCH = str(Path(__file__).with_name("launch.py"))


@dataclass(frozen=True)
class Shape:
    """A program to run. `environment` is complete. `digest_extras`: parts of the environment that belong to the
    digest."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    socket: Path
    digest_extras: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A child is restarted when this changes."""
        return hashlib.sha256("\0".join((*self.command, *self.digest_extras)).encode()).hexdigest()[:16]


def backoff_ms(failures: int) -> int:
    """Milliseconds to wait before the next start, after `failures` failures in a row."""
    return 0 if failures == 0 else min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** min(failures - 1, 10))


class Child:
    """A supervised process. Times are in milliseconds since 1970."""

    def __init__(self, home: Home, grace_ms: int = GRACE_MS) -> None:
        self._home, self._grace_ms = home, grace_ms
        self._claimed = False
        self._wanted: Shape | None = None
        self._record: Record | None = home.record()
        self._attempts: Attempts = home.attempts()
        self._popen: subprocess.Popen[bytes] | None = None
        self._asked_to_stop_ms: int | None = None
        self._not_before_ms = 0

    def want(self, shape: Shape | None) -> None:
        """Set the shape that should run; None: nothing. Before the first call `step` does nothing."""
        self._claimed, self._wanted = True, shape

    @property
    def is_gone(self) -> bool:
        return self._claimed and self._wanted is None and self._record is None and self._popen is None

    def step(self, now_ms: int) -> None:
        """Take the one next step towards the wanted state."""
        if not self._claimed:
            return
        self._refresh()
        if self._record is None:
            if self._popen is not None and self._popen.poll() is None:
                return
            self._absent(now_ms)
        elif not is_running(self._record.process):
            self._handle_end(self._record, now_ms)
        elif self._wanted is None or self._wanted.digest != self._record.digest:
            self._stop(self._record, now_ms)
        elif self._attempts.failures and now_ms - self._record.started_at_ms > HEALTHY_AFTER_MS:
            self._remember(replace(self._attempts, failures=0))
        self._home.bound_log()

    def observe(self) -> Observation:
        """The current state of the process."""
        shape = self._wanted
        record = self._record
        return Observation(
            phase=self._phase(),
            address=f"unix://{shape.socket}" if shape else "",
            incarnation=record.incarnation if record else None,
            started_at_ms=record.started_at_ms if record else None,
            restarts=self._attempts.restarts,
            last_exit=self._attempts.last_exit,
        )

    def remove(self) -> None:
        """Remove the home of a child that is gone."""
        self._home.remove()

    def kill(self) -> None:
        """Send SIGKILL at once to a process that does not answer. Later steps start it again."""
        if self._record is not None and is_running(self._record.process):
            signal_session(self._record.process, signal.SIGKILL)

    def _phase(self) -> Phase:
        if self._wanted is None or self._asked_to_stop_ms is not None:
            return Phase.STOPPING
        if self._record is not None:
            return Phase.RUNNING
        return Phase.STARTING if self._popen is not None else Phase.BACKING_OFF

    def _refresh(self) -> None:
        if self._record is None:
            self._record = self._home.record()
        if self._popen is not None:
            self._popen.poll()  # also keeps an ended child from staying a zombie

    def _absent(self, now_ms: int) -> None:
        """Handle a child without a process: the launcher failed, or nothing was started yet."""
        if self._popen is not None:
            code, self._popen = self._popen.returncode, None
            counts = code != LOCK_TAKEN
            self._failed(Exit(code, now_ms), now_ms, counts=counts)
        elif self._wanted is not None and now_ms >= self._not_before_ms:
            self._start(self._wanted)

    def _handle_end(self, record: Record, now_ms: int) -> None:
        """Handle the end of the leader. The rest of its session is killed first: it may hold memory, files and the
        lock."""
        if session_members(record.process):
            signal_session(record.process, signal.SIGKILL)
            return
        code = self._reaped(record)
        expected = self._asked_to_stop_ms is not None
        self._popen, self._record, self._asked_to_stop_ms = None, None, None
        self._home.forget_process()
        self._home.clear_scratch()
        if self._wanted is not None:
            self._failed(Exit(code, now_ms), now_ms, counts=not expected)

    def _reaped(self, record: Record) -> int | None:
        """The exit code of a leader that this operator started; None: an earlier operator started it. The call also
        reaps a leader that ended since the last poll."""
        started = self._popen
        return None if started is None or started.pid != record.process.pid else started.wait()

    def _failed(self, exit: Exit, now_ms: int, counts: bool) -> None:
        failures = self._attempts.failures + (1 if counts else 0)
        self._remember(Attempts(self._attempts.restarts + 1, failures, exit))
        self._not_before_ms = now_ms + backoff_ms(max(1, failures))

    def _remember(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._home.create()
        self._home.write_attempts(attempts)

    def _stop(self, record: Record, now_ms: int) -> None:
        if self._asked_to_stop_ms is None:
            self._asked_to_stop_ms = now_ms
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.process.pid, signal.SIGTERM)
        elif now_ms - self._asked_to_stop_ms >= self._grace_ms:
            signal_session(record.process, signal.SIGKILL)

    def _start(self, shape: Shape) -> None:
        self._home.create()
        shape.socket.unlink(missing_ok=True)
        command = [sys.executable, "-I", "-S", _LAUNCH, str(self._home.path), shape.digest, *shape.command]
        with self._home.log.open("ab") as log:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(shape.environment),
                cwd=self._home.path,
                start_new_session=True,
            )
