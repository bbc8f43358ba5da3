"""Faults of pods: killed processes and exhausted memory; and the identity of pods before and after."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.cluster.whole.system import System
from tidemark_devcluster.errors import KubectlFailed

FIND = """
import contextlib, sys
from pathlib import Path

program, word = sys.argv[1].encode(), sys.argv[2].encode()
for process in Path("/proc").glob("[0-9]*"):
    with contextlib.suppress(OSError):  # it has ended meanwhile
        words = (process / "cmdline").read_bytes().split(b"\\0")
        if words[0].rpartition(b"/")[2] == program and word in words:
            print(process.name)
"""
# pid, and whether the archive of classes is mapped: a JVM that finds it does not fit goes on without it, in silence
MAPPED = """
import contextlib
from pathlib import Path

for process in Path("/proc").glob("[0-9]*"):
    with contextlib.suppress(OSError):
        if (process / "cmdline").read_bytes().split(b"\\0")[0].rpartition(b"/")[2] == b"java":
            print(process.name, "/opt/tidemark/spark/classes.jsa" in (process / "maps").read_text())
"""
KILL = "import os, signal, sys; [os.kill(int(pid), signal.SIGKILL) for pid in sys.argv[1:]]"
JVM = ("java", "-XX:+UseSerialGC")
REPLICA = ("python", "tidemark_replica")
OPERATOR = ("python", "tidemark_operator")
PLANNER = ("python", "tidemark_planner")
# of this size each, so that the JVM is the largest process, which the kernel chooses
HOG = "import time; held = b'x' * (96 << 20); print('holds', flush=True); time.sleep(600)"


def kill_in(system: System, namespace: str, pod: str, process: tuple[str, str]) -> None:
    """SIGKILL to a process in a pod's only container, as the kernel's killer would."""
    inside = ("exec", "-n", namespace, pod, "--", "python", "-c")
    found = system.node.kubectl(*inside, FIND, *process).split()
    assert found, f"{pod} has no {process[0]} {process[1]}"
    with suppress(KubectlFailed):  # the container may end with it, and kubectl's command in it too
        system.node.kubectl(*inside, KILL, *found)


def with_class_data(system: System, namespace: str, pod: str) -> dict[str, bool]:
    """The JVMs in a pod's only container: which of them have mapped the archive of classes."""
    lines = system.node.kubectl("exec", "-n", namespace, pod, "--", "python", "-c", MAPPED).splitlines()
    return {pid: mapped == "True" for pid, mapped in (line.split() for line in lines)}


@dataclass(frozen=True)
class Incarnations:
    """The processes that serve: pods, and the number of starts of their containers."""

    drivers: frozenset[tuple[str, int]]
    executors: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, system: System) -> Incarnations:
        return cls(processes(system.drivers()), processes(system.executors()))


def processes(pods: list[dict[str, Any]]) -> frozenset[tuple[str, int]]:
    statuses = [(pod, status) for pod in pods for status in pod["status"].get("containerStatuses", ())]
    return frozenset((pod["metadata"]["uid"], status["restartCount"]) for pod, status in statuses)
