"""An operator whose API server fails all the time: it ends only on request, and afterwards every object is as if no
fault had happened.

    kubectl ──────────────────────────► kube-apiserver
    operator ──► fault proxy (every third request; each watch, once) ──► kube-apiserver

Nothing of it needs replicas or a planner: what is looked at is what the operator makes of objects that come, change
and go meanwhile.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.fault_proxy import AT_ONCE, OF_WATCHES, Asked, Fault, FaultProxy, fault_proxy
from tests.waiting import BOUND, until
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.broad]

GROUP = "compute.tidemark.dev"
ENDED = (Fault.DONE_AND_BROKEN, Fault.DONE_AND_LOST, Fault.LOST)
DATAFLOWS = 6


@pytest.fixture
def proxy(kinds_installed: ControlPlane) -> Iterator[FaultProxy]:
    with fault_proxy(kinds_installed.kubeconfig) as proxy:
        yield proxy


@pytest.fixture
def operator(proxy: FaultProxy, namespace: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An operator of this namespace, with all its requests going through the proxy."""
    command = [
        *(sys.executable, "-m", "tidemark_operator"),
        *("--kubeconfig", str(proxy.kubeconfig(tmp_path / "kubeconfig")), "--state-dir", str(tmp_path / "state")),
        *("--namespace", namespace, "--lease-namespace", namespace, "--planner", "127.0.0.1:1"),
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    yield process
    process.terminate()
    process.wait(BOUND)


def storm() -> Callable[[Asked], Fault | None]:
    """Every third request meets the next fault, and each of the first watches. The first
    renewal of the Lease hangs, and the first read of Dataflows."""
    requests = itertools.count()
    faults = itertools.cycle((*AT_ONCE, *ENDED))
    watches = iter((*OF_WATCHES, *AT_ONCE, Fault.LOST, Fault.HANGS, *OF_WATCHES, *AT_ONCE, Fault.LOST))
    hanging = {("PUT", "leases"), ("GET", "dataflows")}

    def chosen(asked: Asked) -> Fault | None:
        if asked.watch:
            return next(watches, None)
        for method, plural in hanging:
            if asked.method == method and plural in asked.path:
                hanging.remove((method, plural))
                return Fault.HANGS
        return next(faults) if next(requests) % 3 == 2 else None

    return chosen


def manifests(edit: int) -> str:
    """An instance that all of them name, and one that it is not; the Dataflows are suspended at the last edit."""
    instance = {"kind": "ComputeInstance", "metadata": {"name": "default"}, "spec": {"storage": {"location": "/data"}}}
    spec = {"instance": "default", "index": {}, "suspend": edit == 2}
    dataflows = [
        {
            "kind": "Dataflow",
            "metadata": {"name": f"d{n}"},
            "spec": {**spec, "sql": f"SELECT {n} AS a, {edit} AS b", "instance": "default" if n else "missing"},
        }
        for n in range(DATAFLOWS)
    ]
    return yaml.safe_dump_all([{"apiVersion": f"{GROUP}/v1alpha1", **body} for body in (instance, *dataflows)])


def conditions(body: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """By type, of those that speak of the object as it is now."""
    found = body.get("status", {}).get("conditions", [])
    now = body["metadata"]["generation"]
    return {c["type"]: (c["status"], c["reason"]) for c in found if c["observedGeneration"] == now}


def test_crash_an_api_server_that_misbehaves_all_the_time_loses_nothing_and_ends_no_operator(
    operator: subprocess.Popen[bytes], proxy: FaultProxy, kinds_installed: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Objects come, are edited twice and go in the storm. Afterwards each says what it should, and those that went are
    forgotten; every fault was met, by requests and by watches."""

    def kubectl(*arguments: str, stdin: str | None = None) -> str:
        return kinds_installed.kubectl("-n", namespace, *arguments, stdin=stdin)

    def dataflows() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(kubectl("get", "dataflows", "-o", "json"))["items"]
        return items

    def log_text() -> str:
        return (tmp_path / "log").read_text()

    def survives(holds: Callable[[], object]) -> None:
        def looked() -> object:
            assert operator.poll() is None, log_text()
            return holds()

        try:
            until(looked)
        except AssertionError:
            raise AssertionError(f"{len(proxy.met)} faults; {proxy.met[-20:]}\n{log_text()}") from None

    survives(lambda: "leading under term" in log_text())
    proxy.choose(storm())
    for edit in range(3):
        kubectl("apply", "-f", "-", stdin=manifests(edit))
        met = len(proxy.met)
        survives(lambda met=met: len(proxy.met) >= met + len((*AT_ONCE, *ENDED)))
    kubectl("delete", "dataflow", "d5", "--wait=false")
    survives(lambda: {fault for _, fault in proxy.met} >= {*AT_ONCE, *ENDED, *OF_WATCHES, Fault.HANGS})
    proxy.heal()

    def all_is_said() -> bool:
        expected = {f"d{n}": "True" if n else "False" for n in range(DATAFLOWS - 1)}
        return {
            body["metadata"]["name"]: conditions(body).get("InstanceFound", ("", ""))[0] for body in dataflows()
        } == expected

    survives(all_is_said)
    # what is edited when all is well is seen by a watch, or by the next look a minute later
    kubectl("apply", "-f", "-", stdin=manifests(3))
    kubectl("delete", "dataflow", "d5", "--wait=true")
    survives(lambda: all(body["status"].get("observedGeneration") == 4 for body in dataflows()) and all_is_said())
    assert "Traceback" not in log_text()
