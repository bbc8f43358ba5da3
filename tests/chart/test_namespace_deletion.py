"""With `watchNamespaces` the operator's rights in a namespace are objects in it, and go when it is deleted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.chart.clusters import GROUP, May, account, answers, apply, cluster, rights, wait_for_bindings
from tests.chart.render import NAMESPACE, rendered_objects
from tests.chart.test_operator_rights import REPLICA, STORE, kubeconfig_of, made, shapes
from tests.waiting import BOUND, until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.errors import OperatorError
from tidemark_operator.handlers.watch import namespace_access
from tidemark_operator.kube.client import Kube

__all__ = ["cluster", "rights"]

pytestmark = [pytest.mark.cluster, pytest.mark.broad]
IN_TEAM_B = May(account("tidemark-operator"), "list", f"computereplicas.{GROUP}", "team-b")


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[bytes]
    log: Path

    def says(self, text: str) -> bool:
        return text in self.log.read_text()


@contextmanager
def operator(plane: ControlPlane, folder: Path, *namespaces: str) -> Iterator[Running]:
    """An operator of a release for some namespaces, under the account that the chart gives it."""
    folder.mkdir()
    kubeconfig = kubeconfig_of(plane, "tidemark-operator", folder)
    options = ["--kubeconfig", str(kubeconfig), "--state-dir", str(folder / "state"), "--lease-namespace", NAMESPACE]
    options += [f"--namespace={namespace}" for namespace in namespaces]
    options += ["--planner", "127.0.0.1:1", "--orchestrator", "kubernetes", "--replica-image", "none"]
    options += ["--default-instance", "team-a/default", "--default-location", "s3://bucket/data"]
    with (folder / "log").open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", "tidemark_operator", *options], stdout=output, stderr=output)
        try:
            yield Running(process, folder / "log")
        finally:
            process.terminate()
            process.wait(BOUND)


@pytest.fixture
def bindings(rights: ControlPlane) -> Iterator[ControlPlane]:
    """The bindings in team-b are there again at the end, and those made in team-a are not: other modules have its
    names."""
    began = made(rights)
    yield rights
    give(rights)
    rights.kubectl("delete", "-n", "team-a", "computereplicas,computeinstances", "--all")
    for _, name in made(rights) - began:
        rights.kubectl("delete", "-n", "team-a", "--ignore-not-found", name)


def give(plane: ControlPlane) -> None:
    apply(
        plane,
        [
            b
            for b in rendered_objects("confined")
            if b["kind"] == "RoleBinding" and b["metadata"]["namespace"] == "team-b"
        ],
    )
    wait_for_bindings(plane)


def take(plane: ControlPlane) -> None:
    plane.kubectl("delete", "rolebinding", "tidemark-operator", "-n", "team-b")
    until(lambda: not answers(plane, [IN_TEAM_B])[IN_TEAM_B])


def test_a_namespace_without_rights_holds_up_no_other(bindings: ControlPlane, tmp_path: Path) -> None:
    """The operator begins anew without it, and makes what is asked for elsewhere; and once more when it is back."""
    both = ("team-a", "team-b")
    with operator(bindings, tmp_path / "first", *both) as first:
        until(lambda: "default" in bindings.kubectl("get", "computeinstances", "-n", "team-a", "-o", "name"))
        take(bindings)
        assert first.process.wait(BOUND) == 1
        assert first.says("the operator has lost its rights in namespace team-b: it starts anew without it")

    with operator(bindings, tmp_path / "second", *both) as second:
        bindings.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([STORE, REPLICA]))
        until(lambda: shapes(bindings))
        assert second.says("namespace team-b is left out: the operator has no rights there. Was it deleted?")
        give(bindings)
        assert second.process.wait(BOUND) == 1
        assert second.says("the operator has rights in namespace team-b now: it starts anew with it")


def test_an_operator_that_may_do_nothing_anywhere_says_so(bindings: ControlPlane, tmp_path: Path) -> None:
    """In one line, and is started anew until somebody has seen to it."""
    with operator(bindings, tmp_path / "one", "team-c", "team-d") as one:
        assert one.process.wait(BOUND) == 1
        assert one.says(
            "tidemark_operator: the operator has no rights in any of the namespaces team-c, team-d. Was it deleted?"
        )


def test_an_operator_goes_on_while_it_may_do_nothing_anywhere(bindings: ControlPlane, tmp_path: Path) -> None:
    """Its connections to replicas, and queries, would end with it, and nothing be gained."""

    async def scenario(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(namespace_access, "CHECK_SECONDS", 0.2)
        async with Kube.connect(kubeconfig_of(bindings, "tidemark-operator", tmp_path), ("team-b", "team-c")) as kube:
            watching = asyncio.create_task(namespace_access.stays(kube, kube.namespaces))
            await asyncio.sleep(4 * namespace_access.TRIES * namespace_access.CHECK_SECONDS)
            assert not watching.done()
            await asyncio.to_thread(give, bindings)
            with pytest.raises(OperatorError, match="the operator has lost its rights in namespace team-c"):
                await asyncio.wait_for(watching, BOUND)

    take(bindings)
    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(scenario(monkeypatch))
