"""CPU time of a process with all its descendants, ended ones included. Linux only, by the system's ticks.

    look 1    spark 500 ── daemon 40 ── worker 300                       840
    look 2    spark 510 ── daemon 41     (gone)                          851: the worker's time stays

The system adds the time of an ended process to its parent only if the parent waits for it; PySpark's daemon does not,
and a parent may be gone itself. So each look records all processes, and a parent's "children that have ended" count
only beyond the recorded times: for the rest of those, and for processes that lived between two looks. The time of such
a process is lost if no parent waited for it; so look often during a long measurement.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Key(NamedTuple):
    """A process: numbers are used again."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class Spent:
    """The times of a process at a look, in ticks."""

    parent: int
    own: int
    """In user and in kernel mode, threads that have ended included."""
    waited: int
    """The processor time of children, and theirs, that it has waited for."""


class Descendants:
    """The descendants of one process, this one by default, without itself. One thread may use it."""

    def __init__(self, root: int | None = None) -> None:
        self._root = os.getpid() if root is None else root
        self._seen: dict[Key, Spent] = {}
        self.ticks = 0
        """The CPU time of living and ended processes, as of the last look."""

    def cpu_ms(self) -> float:
        """Milliseconds since they began; never less than before."""
        self.take(dict(_processes()))
        return self.ticks / TICKS_PER_SECOND * 1e3

    def take(self, now: Mapping[Key, Spent]) -> None:
        """The processes of the system at a look."""
        ours = self._ours(now)
        ended = self._ended(ours)
        for key, spent in ours.items():
            before = self._seen.get(key, Spent(0, 0, 0))
            self.ticks += max(spent.own - before.own, 0) if key.pid != self._root else 0
            self.ticks += max(spent.waited - before.waited - ended.get(key.pid, 0), 0)
        self._seen = ours

    def _ended(self, ours: Mapping[Key, Spent]) -> dict[int, int]:
        """The last known times of ended processes, by their nearest living ancestor."""
        gone = {key.pid: was for key, was in self._seen.items() if key not in ours}
        ended: dict[int, int] = {}
        for was in gone.values():
            above = was.parent
            while above in gone:
                above = gone[above].parent
            ended[above] = ended.get(above, 0) + was.own + was.waited
        return ended

    def _ours(self, now: Mapping[Key, Spent]) -> dict[Key, Spent]:
        """The root, those below it, and those that were: one whose parent has ended is another's child from then on."""
        children: dict[int, list[Key]] = {}
        for key, spent in now.items():
            children.setdefault(spent.parent, []).append(key)
        todo = [key for key in now if key.pid == self._root or key in self._seen]
        found: dict[Key, Spent] = {}
        while todo:
            key = todo.pop()
            if key not in found:
                found[key] = now[key]
                todo += children.get(key.pid, ())
        return found


def cpu_seconds(pid: int) -> float:
    """The CPU time of one process so far, without its children."""
    (own,) = (spent.own for key, spent in _processes([str(pid)]) if key.pid == pid)
    return own / TICKS_PER_SECOND


def resident_mb(pid: int, most: bool = False) -> float:
    """Memory of one process, now or the most that it ever had."""
    name = "VmHWM:" if most else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has ended")


def _processes(pids: Iterable[str] | None = None) -> Iterator[tuple[Key, Spent]]:
    """These, or all that the system shows."""
    for pid in filter(str.isdigit, os.listdir("/proc")) if pids is None else pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if fields := text.rpartition(")")[2].split():  # proc_pid_stat(5), from the third field on
            user, system, waited_user, waited_system = map(int, fields[11:15])
            yield Key(int(pid), int(fields[19])), Spent(int(fields[1]), user + system, waited_user + waited_system)
