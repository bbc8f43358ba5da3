"""The operator beside many Dataflows: `python -m bench.operator [--json]`.

    planned_s       from one `kubectl apply` of all of them until each is planned
    moving_core     of a processor that the operator's process uses while all frontiers advance every second
    rest_core       the same while they stand still and every status is up to date
    writes_per_s    statuses that it writes while they advance
    requests_per_s  its other requests to the API server meanwhile
    rss_mb          the most memory that its process ever had

The operator's process, its planner, etcd and the API server are the real ones, and requests are counted by the API
server. The replicas are processes that the operator starts and speaks to as it does to any, but simulated: they hydrate
at once, and say every second how far they are.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness.api_requests import Rates, requests
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.processes import cpu_seconds, resident_mb
from bench.harness.ratios import Figures, rounded
from tests.e2e.system import CHECKOUT, System, running
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.programs.build import ensure_binaries
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_operator.resources.manifest.meta import GROUP, VERSION

NAMESPACE, SOURCE, TABLES, BOUND = "bench", "readings", 20, 1200.0
QUIET_SECONDS = 5.0
COLUMNS = [{"name": "k", "type": "STRING"}, {"name": "v", "type": "BIGINT"}, {"name": "at", "type": "TIMESTAMP"}]
SAYS = (
    '{.metadata.name} {.status.conditions[?(@.type=="Planned")].status} '
    '{.status.conditions[?(@.type=="Hydrated")].status}{"\\n"}'
)


class DeadlineExceeded(Exception):
    """An awaited event did not happen in time."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "few Dataflows, some seconds")
    parser.add_argument("--dataflows", type=int, default=1000, help="that are applied (%(default)s)")
    parser.add_argument("--replicas", type=int, default=2, help="of their instance (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each measurement (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(dataflows=5, replicas=1, seconds=3.0)
    circumstances = context() | {"load_before": load(), **vars(given)}
    binaries = ensure_binaries(os.environ, ProgressOutput(sys.stderr))
    with (
        tempfile.TemporaryDirectory(prefix="tm-", ignore_cleanup_errors=True) as folder,
        ControlPlane.started(Path(folder) / "plane", binaries) as plane,
        stand_in(Path(folder) / "stand-in"),
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.serve(CHECKOUT / "crds")
        idle = _rates(plane, given.seconds / 4)
        (home := Path(folder) / "system").mkdir()
        with running(plane, NAMESPACE, home) as system:
            _base(system, given.replicas)
            figures, asked = _measured(system, given.dataflows, given.seconds, idle)
    report("operator", rounded(figures), circumstances | asked | {"load_after": load()}, given.json)


@contextmanager
def stand_in(folder: Path) -> Iterator[None]:
    """Meanwhile, who starts a replica from here starts a simulated one: a package in the place of its program's."""
    package = folder / "tidemark_replica"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("from bench.harness.simulated import main\n\nmain()\n")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(CHECKOUT), *([before] if before else [])])
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _base(system: System, replicas: int) -> None:
    """All that Dataflows need: an instance, its replicas, a source that a replica ingests, and a planner that runs."""
    system.apply("ComputeInstance", "default", {"storage": {"location": system.location}})
    for number in range(replicas):
        limits = {"resources": {"limits": {"cpu": 2, "memory": "2Gi"}}}
        system.apply("ComputeReplica", f"r{number}", {"instance": "default", **limits})
    tables = [
        {"name": f"t{number}", "format": "csv", "path": f"t{number}", "columns": COLUMNS} for number in range(TABLES)
    ]
    files = {"path": str(system.home), "tables": tables}
    system.apply("DataSource", SOURCE, {"instance": "default", "tick": "1s", "files": files})
    system.dataflow("first", f"SELECT k FROM {SOURCE}.t0", index={})
    system.wait_hydrated("first")
    assert system.operator is not None
    progress(f"a first Dataflow is hydrated; the operator is process {system.operator.pid}")


def _dataflow(number: int) -> dict[str, Any]:
    """Every other one a materialized view."""
    table = f"{SOURCE}.t{number % TABLES}"
    index = f"SELECT k, count(*) AS n, sum(v) AS total FROM {table} WHERE v % 1000 <> {number} GROUP BY k"
    view = f"SELECT k, v, at FROM {table} WHERE v % 1000 = {number}"
    exported = {"sql": view, "materializedView": {}} if number % 2 else {"sql": index, "index": {"key": ["k"]}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Dataflow",
        "metadata": {"name": f"d{number}"},
        "spec": {"instance": "default", **exported},
    }


def _measured(system: System, dataflows: int, seconds: float, idle: Rates) -> tuple[Figures, dict[str, Any]]:
    assert system.operator is not None
    pid = system.operator.pid
    manifests = {"apiVersion": "v1", "kind": "List", "items": [_dataflow(number) for number in range(dataflows)]}
    with Conditions(system) as conditions:
        before, began, spent = requests(system.plane), time.perf_counter(), cpu_seconds(pid)
        applied = _applied(system, manifests)
        planned = _until("planned", lambda: conditions.hold(0) == dataflows + 1) - began
        planning = cpu_seconds(pid) - spent
        progress(f"all are planned after {planned:.1f} s, {planning:.1f} s of CPU")
        hydrated = _until("hydrated", lambda: conditions.hold(1) == dataflows + 1) - began
        applied.communicate()
    each = Rates.between(before, requests(system.plane), dataflows)
    progress(f"all are hydrated after {hydrated:.1f} s")
    time.sleep(min(seconds / 4, 30.0))
    moving, asked = _watched(system.plane, pid, seconds)
    progress(f"they advance: {moving:.3f} of a core, {asked.status_writes:.1f} statuses a second")
    for replica in system.replica_pids().values():
        os.kill(replica, signal.SIGUSR1)
    _until("rest", lambda: not _rates(system.plane, QUIET_SECONDS).status_writes)
    rest, asked_at_rest = _watched(system.plane, pid, seconds)
    figures: Figures = {
        "planned_s": planned,
        "hydrated_s": hydrated,
        "planning_cpu_s": planning,
        "moving_core": moving,
        "rest_core": rest,
        "writes_per_s": asked.status_writes,
        "requests_per_s": asked.others(idle),
        "rest_writes_per_s": asked_at_rest.status_writes,
        "rest_requests_per_s": asked_at_rest.others(idle),
        "rss_mb": resident_mb(pid, most=True),
        "rss_at_rest_mb": resident_mb(pid),
    }
    rates = {"moving": asked.most(8), "rest": asked_at_rest.most(8), "without": idle.most(8)}
    return figures, {"asked_for_each": each.most(12), "asked_per_s": rates}


class Conditions:
    """The conditions Planned and Hydrated of all Dataflows, from a watch."""

    def __init__(self, system: System) -> None:
        command = [*_kubectl(system), "get", "dataflows", "--watch", "-o", f"jsonpath={SAYS}"]
        self._watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._said: dict[str, list[str]] = {}
        self._reading = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Conditions:
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.terminate()
        self._watch.wait()
        self._reading.join()

    def hold(self, which: int) -> int:
        """The number of Dataflows of which the condition is true."""
        if self._watch.poll() is not None:
            raise DeadlineExceeded("kubectl does not watch any more")
        return sum(message[which : which + 1] == ["True"] for message in list(self._said.values()))

    def _read(self) -> None:
        assert self._watch.stdout is not None
        for line in self._watch.stdout:
            name, *conditions = line.split()
            self._said[name] = conditions


def _kubectl(system: System) -> list[str]:
    return [str(system.plane.layout.kubectl), f"--kubeconfig={system.plane.kubeconfig}", "-n", system.namespace]


def _applied(system: System, manifests: dict[str, Any]) -> subprocess.Popen[str]:
    """One kubectl that applies them all."""
    path = system.home / "dataflows.json"
    path.write_text(json.dumps(manifests))
    command = [*_kubectl(system), "apply", "--server-side", "-f", str(path)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sys.stderr, text=True)


def _until(what: str, condition: Callable[[], bool]) -> float:
    """The clock when it came true; raises DeadlineExceeded."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > BOUND:
            raise DeadlineExceeded(f"{what}: not within {BOUND:.0f} s")
        time.sleep(0.1)
    return time.perf_counter()


def _watched(plane: ControlPlane, pid: int, seconds: float) -> tuple[float, Rates]:
    """The part of a core that the process uses, and the requests meanwhile."""
    began, spent = time.perf_counter(), cpu_seconds(pid)
    rates = _rates(plane, seconds)
    return (cpu_seconds(pid) - spent) / (time.perf_counter() - began), rates


def _rates(plane: ControlPlane, seconds: float) -> Rates:
    before, began = requests(plane), time.perf_counter()
    time.sleep(seconds)
    after = requests(plane)
    return Rates.between(before, after, time.perf_counter() - began)


if __name__ == "__main__":
    main()
