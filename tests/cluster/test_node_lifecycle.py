"""A node leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from tidemark_devcluster.node import process_tree, veth
from tidemark_devcluster.node.binaries import NodeBinaries
from tidemark_devcluster.node.cluster import OneNode

# where servers of Kubernetes and containerd keep things unless they are told otherwise
ELSEWHERE = [
    Path(path)
    for path in ("/var/lib/kubelet", "/var/lib/cni", "/opt/containerd", "/usr/libexec/kubernetes")
    if not Path(path).exists()
]


def traces(node: OneNode) -> list[str]:
    """The traces of a node on the host: interfaces, mounts, cgroups, processes."""
    own = str(node.place.root)
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if own in line]
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{node.place.cgroup}")]
    listed = subprocess.run(["ps", "-e", "-o", "args"], capture_output=True, text=True, check=True).stdout
    processes = [line for line in listed.splitlines() if own in line]
    found = veth.find_own(node.place)
    elsewhere = [str(path) for path in ELSEWHERE if path.exists()]
    return mounts + groups + processes + elsewhere + ([found.link] if found else [])


@pytest.fixture
def own(tmp_path: Path, node_binaries: NodeBinaries) -> Iterator[OneNode]:
    """A node of one test's own, to be harmed, beside the one that the others share."""
    with OneNode.started(tmp_path / "state", node_binaries) as made:
        yield made


def test_down_leaves_nothing(own: OneNode) -> None:
    """Not on the network, not in the kernel, not on disk."""
    assert traces(own)
    own.down()
    assert traces(own) == []
    assert not own.place.root.exists()


def test_crash_one_sigkill_ends_all_and_the_next_up_begins_again(own: OneNode, node_binaries: NodeBinaries) -> None:
    """Servers and pods hang on the first process; what is left are empty cgroups and files."""
    pids = own.status().pids
    os.kill(pids["init"], signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()))
    until(lambda: veth.find_own(own.place) is None)
    assert not own.status().ready
    own.up(node_binaries, die_with_starter=True)
    assert own.status().ready


def test_crash_a_server_that_dies_is_started_again(own: OneNode) -> None:
    """The node restarts it as a service manager would; its data are still there."""
    own.kubectl("create", "namespace", "kept")
    before = own.status().pids["kube-apiserver"]
    os.kill(before, signal.SIGKILL)
    until(lambda: process_tree.program_name(before) is None)
    until(lambda: own.status().ready)
    assert own.status().pids["kube-apiserver"] != before
    own.kubectl("get", "namespace", "kept")
