"""A `kubectl tidemark subscribe` under way, as a program that reads it sees it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.system import CLI, PATIENCE_SECONDS, System, is_to_be_asked_again, wait_for

Row = tuple[Any, ...]


class Following:
    """A subscribe under way, and what it has said; each line is read as it comes."""

    def __init__(self, system: System, subject: str, *options: str) -> None:
        command = [*CLI, "subscribe", subject, "-n", system.namespace, "-o", "json"]
        self.process = subprocess.Popen(
            [*command, *options, "--gateway-file", str(system.home / "gateway.json")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.changes: list[tuple[int, Row, int]] = []
        self.progress: list[int | None] = []
        self._said: str | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            document = json.loads(line)
            if "__progress" in document:
                self.progress.append(document["__progress"])
            else:
                time, diff, *row = document.values()
                self.changes.append((time, tuple(row), diff))

    def end(self, how: int = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return status

    def said(self) -> str:
        """The text on standard error, once the program has ended."""
        assert self.process.stderr is not None
        if self._said is None:
            self._said = self.process.stderr.read()
        return self._said

    @property
    def has_told(self) -> bool:
        return bool(self.changes or self.progress)

    def before(self, time: int) -> Counter[Row]:
        """The sum of the changes before it. Each row changes at most once at a time, in order of times."""
        changes = [(t, row) for t, row, _ in self.changes]
        assert max(Counter(changes).values(), default=0) <= 1, "the subscribe delivered a change twice"
        assert [t for t, _ in changes] == sorted(t for t, _ in changes)
        total: Counter[Row] = Counter()
        for t, row, diff in self.changes:
            if t < time:
                total[row] += diff
        return Counter({row: count for row, count in total.items() if count})


@contextmanager
def following(system: System, subject: str, *options: str) -> Iterator[Following]:
    """Once it has told something, or has ended."""
    made: Following = wait_for("a subscribe", lambda: _start_following(system, subject, *options), system.log)
    try:
        yield made
    finally:
        made.process.kill()
        made.wait()


def _start_following(system: System, subject: str, *options: str) -> Following | None:
    """None where it is to be asked for again, as users would: a planner that is busy says so."""
    made = Following(system, subject, *options)
    wait_for("its first words", lambda: made.has_told or made.process.poll() is not None, system.log)
    if made.process.poll() == 1 and made.wait() and not made.has_told and is_to_be_asked_again(made.said()):
        return None
    return made
