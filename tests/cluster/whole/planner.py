"""The planner through the command line, with statements that no cache holds."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tests.cluster import pods
from tests.cluster.whole.gateway import reader
from tests.cluster.whole.pod_faults import processes
from tests.cluster.whole.system import System

SELECTOR = "--selector=app.kubernetes.io/name=tidemark,app.kubernetes.io/component=planner"
REGIONS = {"AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"}
_NUMBERS = itertools.count(1)


def planner_pods(system: System) -> list[dict[str, Any]]:
    """The planner's pods that are not told to end."""
    found = pods.get(system.node, system.home, "pods", SELECTOR)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def planners(system: System) -> frozenset[tuple[str, int]]:
    """The planners' processes."""
    return processes(planner_pods(system))


def asked_anew(system: System) -> bool:
    """Whether a query with an operator was planned and answered."""
    limit = next(_NUMBERS)
    done = reader(system).ask(f"SELECT upper(r_name) AS name, nations * 2 AS n FROM regions WHERE nations > -{limit}")
    return done.returncode == 0 and {row["name"] for row in json.loads(done.stdout)["rows"]} == REGIONS
