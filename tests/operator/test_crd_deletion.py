"""The CustomResourceDefinitions are deleted under a running operator: it ends with a message at each start, and looks
after new objects once they are back.

    operator ──► kube-apiserver ◄── kubectl delete -f crds/ ... kubectl apply -f crds/
       └─ ends ─► is started again, as a Deployment does
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kinds_fixtures import CRDS
from tests.operator.test_api_storm import conditions, manifests
from tests.waiting import BOUND, until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.programs.build import Binaries

pytestmark = [pytest.mark.cluster, pytest.mark.broad]
SAID = "is not installed: kubectl apply -f crds/"


@pytest.fixture
def plane(control_plane_binaries: Binaries, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of its own: other tests need their definitions."""
    with ControlPlane.started(tmp_path / "plane", control_plane_binaries) as plane:
        yield plane


class Kept:
    """An operator of the namespace `default` that is started again whenever it ends."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tidemark_operator", "--kubeconfig", str(plane.kubeconfig)]
        self._command += ["--state-dir", str(folder / "state"), "--planner", "127.0.0.1:1"]
        self._command += ["--namespace", "default", "--lease-namespace", "default"]
        self._log, self.exits = folder / "log", list[int]()
        self._process = self._started()

    def until(self, holds: Callable[[], object]) -> None:
        def looked() -> object:
            if (exit := self._process.poll()) is not None:
                self.exits.append(exit)
                self._process = self._started()
            return holds()

        try:
            until(looked)
        except AssertionError:
            raise AssertionError(f"it ended with {self.exits}; it said:\n{self.said()}") from None

    def said(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(BOUND)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log)


@pytest.fixture
def operator(plane: ControlPlane, tmp_path: Path) -> Iterator[Kept]:
    plane.serve(CRDS)
    kept = Kept(plane, tmp_path)
    yield kept
    kept.end()


def test_definitions_go_and_come_back_under_an_operator(plane: ControlPlane, operator: Kept) -> None:
    """Objects that are applied again are reconciled, under the old names; nothing of it ends in a traceback."""

    def all_is_said() -> bool:
        bodies = json.loads(plane.kubectl("get", "dataflows", "-o", "json"))["items"]
        settings = {body["metadata"]["name"]: conditions(body).get("InstanceFound", ("", ""))[0] for body in bodies}
        return len(settings) == 6 and settings == {name: "True" if name != "d0" else "False" for name in settings}

    plane.kubectl("apply", "-f", "-", stdin=manifests(0))
    operator.until(all_is_said)
    assert operator.exits == []

    plane.kubectl("delete", "-f", str(CRDS), f"--timeout={BOUND:.0f}s")
    operator.until(lambda: len(operator.exits) == 2)
    assert set(operator.exits) == {1}
    assert operator.said().count(SAID) >= 2

    plane.serve(CRDS)
    plane.kubectl("apply", "-f", "-", stdin=manifests(1))
    operator.until(all_is_said)
    assert "Traceback" not in operator.said()
