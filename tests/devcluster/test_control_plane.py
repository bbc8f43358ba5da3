"""The control plane itself: real etcd, real kube-apiserver, real controller manager."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import BOUND
from tidemark_devcluster.control_plane.commands import APISERVER, CONTROLLER_MANAGER, ETCD, SERVERS
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.control_plane.start import StartOptions
from tidemark_devcluster.errors import KubectlFailed, StateUnusable
from tidemark_devcluster.programs.build import Binaries

pytestmark = pytest.mark.cluster

OPTIONS = StartOptions(durable=False, die_with_starter=True)
CRD = json.dumps(
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "tides.test.tidemark.dev"},
        "spec": {
            "group": "test.tidemark.dev",
            "scope": "Namespaced",
            "names": {"kind": "Tide", "plural": "tides"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object", "properties": {"height": {"type": "integer"}}}},
                        }
                    },
                }
            ],
        },
    }
)
TIDE = json.dumps(
    {"apiVersion": "test.tidemark.dev/v1", "kind": "Tide", "metadata": {"name": "high"}, "spec": {"height": 5}}
)


@pytest.fixture
def plane(tmp_path: Path, control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane of one test's own, to be damaged."""
    made = ControlPlane(tmp_path / "state")
    try:
        made.up(control_plane_binaries, OPTIONS)
        yield made
    finally:
        made.delete()


def has_ended(pid: int) -> bool:
    """Whether no process has this pid, or one that has ended (init takes its time to reap orphans)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return "\nState:\tZ" in status


def test_kinds_are_served_however_soon_after_they_were_applied(plane: ControlPlane, tmp_path: Path) -> None:
    """Many at once: the API server says nothing of the last of them when they are looked at first."""
    kinds = tmp_path / "kinds"
    kinds.mkdir()
    names = [f"tide{number}" for number in range(60)]
    for name in names:
        (kinds / f"{name}.json").write_text(CRD.replace("tide", name).replace("Tide", name.capitalize()))
    plane.serve(kinds)
    for name in names:
        plane.kubectl("get", f"{name}s.test.{name}mark.dev")


def test_crash_a_killed_server_is_repaired_with_its_data_and_address(
    plane: ControlPlane, control_plane_binaries: Binaries, tmp_path: Path
) -> None:
    """SIGKILL of kube-apiserver, then of etcd: `up` starts that one alone; objects and kubeconfig stay."""
    plane.kubectl("create", "namespace", "kept")
    (kind := tmp_path / "kind.json").write_text(CRD)
    plane.serve(kind)
    plane.kubectl("apply", "-n", "kept", "-f", "-", stdin=TIDE)
    before, kubeconfig = plane.status(), plane.kubeconfig.read_text()
    for victim in (APISERVER, ETCD):
        os.kill(plane.status().pids[victim], signal.SIGKILL)
        plane.up(control_plane_binaries, OPTIONS)
        assert plane.kubectl("get", "-n", "kept", "tide/high", "-o", "jsonpath={.spec.height}") == "5"
    after = plane.status()
    assert after.ready
    assert after.server == before.server
    assert plane.kubeconfig.read_text() == kubeconfig
    assert after.pids[CONTROLLER_MANAGER] == before.pids[CONTROLLER_MANAGER]
    assert after.pids[APISERVER] != before.pids[APISERVER]
    assert after.pids[ETCD] != before.pids[ETCD]


def test_up_of_a_running_control_plane_changes_nothing_and_down_ends_every_process(
    plane: ControlPlane, control_plane_binaries: Binaries
) -> None:
    """`up` twice is `up` once; after `down` none of the three is left, and the next `up` has the data."""
    plane.kubectl("create", "namespace", "kept")
    before = plane.status()
    plane.up(control_plane_binaries, OPTIONS)
    assert plane.status().pids == before.pids
    plane.down()
    assert set(before.pids) == set(SERVERS)
    assert all(has_ended(pid) for pid in before.pids.values())
    assert plane.status().pids == {}
    plane.up(control_plane_binaries, OPTIONS)
    assert plane.kubectl("get", "namespace", "kept", "-o", "name") == "namespace/kept\n"
    assert plane.status().server == before.server


def test_a_plane_outlives_the_command_that_started_it_and_another_ends_it(
    tmp_path: Path, control_plane_binaries: Binaries
) -> None:
    """`up`, `status` and `down --delete`, each a program of its own; the kubeconfig lies where it was asked for."""
    state, kubeconfig = tmp_path / "state", tmp_path / "kubeconfig"

    def devcluster(*arguments: str) -> str:
        command = [sys.executable, "-m", "tidemark_devcluster", *arguments, "--state", str(state)]
        command += ["--kubeconfig", str(kubeconfig)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout

    try:
        started = json.loads(devcluster("up", "--no-fsync", "--json"))
        assert json.loads(devcluster("status", "--json"))["pids"] == started["pids"]
        plane = ControlPlane(state, kubeconfig)
        assert plane.kubectl("get", "namespace", "default", "-o", "name") == "namespace/default\n"
        assert started["kubeconfig"] == str(kubeconfig)
    finally:
        devcluster("down", "--delete")
    assert set(started["pids"]) == set(SERVERS)
    assert all(has_ended(pid) for pid in started["pids"].values())
    assert list(tmp_path.iterdir()) == []


def test_another_port_is_refused_while_it_runs(control_plane: ControlPlane, control_plane_binaries: Binaries) -> None:
    """Moving under its clients' feet is not what `up` does."""
    with pytest.raises(StateUnusable, match=r"runs on port .*: end it with `down` first"):
        control_plane.up(control_plane_binaries, StartOptions(port=1))
    assert control_plane.status().ready


def test_the_second_token_is_known_and_may_do_nothing(control_plane: ControlPlane, namespace: str) -> None:
    """Authenticated (it has a name), but Forbidden; a wrong token is not even that."""
    outsider = {"kubeconfig": control_plane.outsider_kubeconfig}
    for arguments in (("get", "pods"), ("create", "serviceaccount", "x"), ("delete", "serviceaccount", "default")):
        with pytest.raises(KubectlFailed, match=r'forbidden: User "outsider" cannot'):
            control_plane.kubectl(*arguments, "-n", namespace, **outsider)
    with pytest.raises(KubectlFailed, match=r"Unauthorized|logged in"):
        control_plane.kubectl("get", "pods", "-n", namespace, "--user=", "--token=wrong")


def test_owned_objects_are_deleted_with_their_owner(control_plane: ControlPlane, namespace: str) -> None:
    """The garbage collector works: deleting a ConfigMap deletes the one that it owns."""

    def config_map(name: str, owners: list[dict[str, str]]) -> str:
        metadata = {"name": name, "ownerReferences": owners}
        return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=config_map("owner", []))
    uid = control_plane.kubectl("get", "-n", namespace, "configmap/owner", "-o", "jsonpath={.metadata.uid}")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=config_map("owned", [owner]))
    control_plane.kubectl("delete", "-n", namespace, "configmap/owner")
    control_plane.kubectl("wait", "-n", namespace, "--for=delete", "configmap/owned", f"--timeout={BOUND:.0f}s")


def test_a_namespace_that_is_deleted_ends(control_plane: ControlPlane) -> None:
    """The namespace controller works."""
    control_plane.kubectl("create", "namespace", "short-lived")
    control_plane.kubectl("delete", "namespace", "short-lived", f"--timeout={BOUND:.0f}s")


def test_a_service_account_gets_a_token_for_an_audience(control_plane: ControlPlane, namespace: str) -> None:
    """TokenRequest works with a key that was made without openssl."""
    token = control_plane.kubectl("create", "token", "default", "-n", namespace, "--audience=tidemark")
    assert token.count(".") == 2


def test_the_session_shares_one_plane_that_is_private(control_plane: ControlPlane) -> None:
    """Loopback, secrets for the owner only, nothing of the user's own configuration."""
    status = control_plane.status()
    assert status.server is not None
    assert status.server.startswith("https://127.0.0.1:")
    for path in (control_plane.kubeconfig, control_plane.outsider_kubeconfig, control_plane.layout.tokens):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
