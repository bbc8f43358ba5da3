"""The processes of a running system, found by its folder, and their costs.

    command line names the folder ──► etcd, apiserver, operator, planner, replica, ... ──► with all their children

Linux only (/proc), like the process orchestrator.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROLES = (
    ("kube-apiserver", "apiserver"),
    ("kube-controller-manager", "controllers"),
    ("etcd", "etcd"),
    ("tidemark_operator", "operator"),
    ("tidemark_planner", "planner"),
    ("tidemark_replica.spark.python_daemon", "workers"),
    ("tidemark_replica", "replica"),
    ("java", "jvm"),
)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """One process at one moment."""

    pid: int
    parent: int
    command: str
    rss: int
    threads: int
    files: int
    cpu_seconds: float

    @property
    def role(self) -> str:
        """The role of the process in the system; its short name where it is nothing known."""
        program = self.command.split(" ", 1)[0].rsplit("/", 1)[-1]
        known = (role for name, role in _ROLES if name == program or f"-m {name}" in self.command)
        return next(known, program)


def of_system(home: Path) -> list[Process]:
    """Every process whose command line names the folder, and all below them."""
    everything = {p.pid: p for p in _all()}
    inside = {pid for pid, p in everything.items() if str(home) in p.command and p.role in _known_roles()}
    while more := {pid for pid, p in everything.items() if p.parent in inside} - inside:
        inside |= more
    return [everything[pid] for pid in inside]


def measures(processes: list[Process]) -> dict[str, float]:
    """Per role: memory in MiB, threads, open files, seconds of CPU so far, and how many processes.

    A JVM belongs to the process that started it: the planner and each replica have one.
    """
    roles = {process.pid: process.role for process in processes}
    total: defaultdict[str, float] = defaultdict(float)
    for process in processes:
        role = f"{roles.get(process.parent, '?')}'s jvm" if process.role == "jvm" else process.role
        total[f"{role}: rss MiB"] += process.rss / 2**20
        total[f"{role}: threads"] += process.threads
        total[f"{role}: open files"] += process.files
        total[f"{role}: cpu s"] += process.cpu_seconds
        total[f"{role}: processes"] += 1
    return dict(total)


def _known_roles() -> set[str]:
    return {role for _, role in _ROLES}


def _all() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                process = _read(folder)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            if process.command:  # else a zombie, or the kernel's
                yield process


def _read(folder: Path) -> Process:
    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    return Process(
        pid=int(folder.name),
        parent=int(fields[1]),
        command=command,
        rss=int(fields[21]) * _PAGE,
        threads=int(fields[17]),
        files=len(os.listdir(folder / "fd")),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
    )
