"""What is done to pods: processes in them killed, their memory used up; and who they are, to tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cluster.whole.system import System

KILL = """
import os, signal, sys
from pathlib import Path

program, word = sys.argv[1].encode(), sys.argv[2].encode()
for process in Path("/proc").glob("[0-9]*"):
    words = (process / "cmdline").read_bytes().split(b"\\0")
    if words[0].rpartition(b"/")[2] == program and word in words:
        os.kill(int(process.name), signal.SIGKILL)
        print("killed")
"""
JVM = ("java", "-XX:+UseSerialGC")
REPLICA = ("python", "tidemark_replica")
OPERATOR = ("python", "tidemark_operator")
# of this size each, so that the JVM is the largest process, which the kernel chooses
HOG = "import time; held = b'x' * (96 << 20); print('holds', flush=True); time.sleep(600)"


def kill_in(system: System, namespace: str, pod: str, process: tuple[str, str]) -> None:
    """SIGKILL to a process in a pod's only container, as the kernel's killer would."""
    said = system.node.kubectl("exec", "-n", namespace, pod, "--", "python", "-c", KILL, *process)
    assert "killed" in said, f"{pod} has no {process[0]} {process[1]}"


@dataclass(frozen=True)
class Incarnations:
    """Which processes serve: pods, and how often their containers were started."""

    drivers: frozenset[tuple[str, int]]
    executors: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, system: System) -> Incarnations:
        return cls(_processes(system.drivers()), _processes(system.executors()))


def _processes(pods: list[dict[str, Any]]) -> frozenset[tuple[str, int]]:
    statuses = [(pod, status) for pod in pods for status in pod["status"].get("containerStatuses", ())]
    return frozenset((pod["metadata"]["uid"], status["restartCount"]) for pod, status in statuses)
