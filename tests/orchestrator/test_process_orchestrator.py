"""The process orchestrator: short socket paths in a private folder, and nothing kept without a resource."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import until
from tidemark_operator.errors import OperatorError
from tidemark_operator.orchestrator.interface import Exit, Owner, PodSpec, ReplicaSpec
from tidemark_operator.orchestrator.local.orchestrator import (
    MAX_SOCKET_BYTES,
    ProcessOrchestrator,
    replica_command,
    socket_folder,
)
from tidemark_operator.orchestrator.local.process_record import Attempts, Home
from tidemark_operator.orchestrator.local.stop import main
from tidemark_operator.orchestrator.local.supervised_process import Child, Shape
from tidemark_operator.process_liveness import is_running
from tidemark_replica.storage.source_secrets import VARIABLE
from tidemark_replica.storage.tpch.initial import SHARED_FOLDER

REPLICA = ReplicaSpec("0a1b", "default", "r1", 2, 2 << 30)


def test_sockets_of_a_deep_state_folder_have_short_paths(tmp_path: Path) -> None:
    """A unix socket's path holds about 107 bytes; the same folder is found again."""
    deep = tmp_path / ("d" * 120)

    folder = socket_folder(deep)

    assert len(str(folder / ("0" * 16))) <= MAX_SOCKET_BYTES
    assert folder == socket_folder(deep)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()


def test_a_socket_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    """Whoever can enter could speak to the replicas."""
    (tmp_path / "s").mkdir(mode=0o755)

    with pytest.raises(OperatorError, match="0700"):
        socket_folder(tmp_path)


def shared(state: Path) -> dict[str, str]:
    """Replicas of one machine share what load generators make."""
    return {SHARED_FOLDER: str(state / "source-data")}


def test_a_replica_gets_its_resources_and_no_secrets(tmp_path: Path) -> None:
    """Cores and memory are in its command; of the environment it sees what it needs to start, and to reach the shards.

    The planner, which reads no data, is not told how to.
    """
    store = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    orchestrator = ProcessOrchestrator(tmp_path, {"PATH": "/bin", "KUBECONFIG": "/secret", "AWS_SECRET": "x", **store})
    command = " ".join(replica_command(REPLICA, "unix:///s", tmp_path))

    assert "--cores 2" in command
    assert f"--memory {2 << 30}" in command
    assert orchestrator._replica_shape(REPLICA).environment == {"PATH": "/bin", **store, **shared(tmp_path)}
    assert orchestrator._planner_shape().environment == {"PATH": "/bin"}
    assert not {*store.values()} & {*replica_command(REPLICA, "unix:///s", tmp_path)}


def test_a_replica_with_a_secret_is_told_the_folder_of_its_files_and_no_credentials(tmp_path: Path) -> None:
    """Where the store is may still be the operator's to say. Another Secret, or none, is another shape."""
    environment = {"AWS_REGION": "eu-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SESSION_TOKEN": "t"}
    orchestrator = ProcessOrchestrator(tmp_path, environment)
    shapes = [
        orchestrator._replica_shape(replace(REPLICA, pod=PodSpec(credentials=name))) for name in ("", "keys", "others")
    ]
    folder = str(tmp_path / "stores" / "default.keys")

    assert shapes[0].environment == {**environment, **shared(tmp_path)}
    others = {"AWS_REGION": "eu-1", "TIDEMARK_STORE_SETTINGS": folder}
    assert shapes[1].environment == {**others, **shared(tmp_path)}
    assert len({shape.digest for shape in shapes}) == 3


def test_a_replica_finds_the_secrets_of_sources_of_its_instance_alone(tmp_path: Path) -> None:
    """The folder is that of the instance; another list is another shape."""
    orchestrator = ProcessOrchestrator(tmp_path, {})
    replica = replace(REPLICA, instance=Owner("shop", "u"))
    shapes = [
        orchestrator._replica_shape(replace(replica, pod=PodSpec(source_secrets=names)))
        for names in ((), ("orders-db",), ("brokers", "orders-db"))
    ]
    catalogue = orchestrator._replica_shape(replace(replica, pod=PodSpec(iceberg="{}")))
    assert catalogue.environment == {"TIDEMARK_ICEBERG": "{}", **shared(tmp_path)}
    folder = {VARIABLE: str(tmp_path / "source-secrets" / "default.shop")}

    assert shapes[0].environment == shared(tmp_path)
    assert shapes[1].environment == shapes[2].environment == {**folder, **shared(tmp_path)}
    assert len({shape.digest for shape in shapes}) == 3


def test_homes_without_a_resource_are_removed(tmp_path: Path) -> None:
    """A replica of an earlier operator whose resource was deleted meanwhile."""
    for key in ("0a1b", "dead"):
        (tmp_path / "replicas" / key).mkdir(parents=True)
    orchestrator = ProcessOrchestrator(tmp_path, {})
    orchestrator._planner.want(None)

    orchestrator.step(0)
    assert (tmp_path / "replicas" / "dead").exists()
    orchestrator.retain({"0a1b"})
    orchestrator.step(0)

    assert sorted(p.name for p in (tmp_path / "replicas").iterdir()) == ["0a1b"]
    assert orchestrator.observe("dead") == ()


def test_stop_ends_the_processes_of_an_operator_and_no_other(tmp_path: Path) -> None:
    """A real child that outlived its operator; a folder that is no child's stays."""
    home = Home(tmp_path / "replicas" / "0a1b")
    home.create()
    shape = Shape((sys.executable, "-c", "import time; time.sleep(600)"), dict(os.environ), tmp_path / "socket")
    child = Child(home)
    child.want(shape)

    def started() -> bool:
        child.step(int(time.time() * 1000))
        return (record := home.record()) is not None and is_running(record.process)

    until(started)
    record = home.record()
    assert record is not None
    (tmp_path / "token").write_text("kept")

    assert main([str(tmp_path)]) == 0
    assert not is_running(record.process)
    assert not home.path.exists()
    assert (tmp_path / "token").read_text() == "kept"
    assert main([str(tmp_path)]) == 0


def test_a_planner_that_runs_elsewhere_is_not_started_here(tmp_path: Path) -> None:
    """In a cluster it is a Deployment; the operator's image has no JVM to run one."""
    orchestrator = ProcessOrchestrator(tmp_path, {}, planner=False)

    orchestrator.step(0)
    orchestrator.kill_planner()

    assert orchestrator.observe_planner().incarnation is None
    assert orchestrator.explain_planner() == ""
    assert not (tmp_path / "planner" / "process.json").exists()


def test_why_the_planner_does_not_answer_is_said(tmp_path: Path) -> None:
    """With its exit code and where its log is: no Java, for instance."""
    home = Home(tmp_path / "planner")
    home.create()
    home.write_attempts(Attempts(3, 3, Exit(1, 0)))

    reported = ProcessOrchestrator(tmp_path, {}).explain_planner()

    assert "exit code 1" in reported
    assert f"{tmp_path}/planner/log" in reported
