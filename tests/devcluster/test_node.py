"""A node as text and decisions, without running it; tests/cluster runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.tidy.checkout import ROOT
from tidemark_devcluster.control_plane.commands import ServerCommand
from tidemark_devcluster.control_plane.credentials import Tokens
from tidemark_devcluster.control_plane.layout import ControlPlaneLayout
from tidemark_devcluster.node import archive, cgroups, host_requirements, servers, settings, veth
from tidemark_devcluster.node.binaries import NodeBinaries
from tidemark_devcluster.node.credentials import NodeTokens, server_kubeconfig
from tidemark_devcluster.node.node_layout import Addresses, Place
from tidemark_devcluster.node.servers import Plan
from tidemark_devcluster.programs import recipe
from tidemark_devcluster.programs.build import Binaries

BIN = Path("/bin/true")
BINARIES = NodeBinaries(Binaries(BIN, BIN, BIN, BIN), BIN, BIN, BIN, BIN, BIN)


def test_the_node_runs_the_kubernetes_of_the_control_plane() -> None:
    """Two go.mod files, one version: kubelet may not be newer than its API server."""
    for module in (recipe.KUBERNETES, recipe.NODE):
        text = (recipe.module_folder(module) / "go.mod").read_text()
        assert f"k8s.io/kubernetes {recipe.kubernetes_version()}" in text


def test_the_source_of_a_program_is_part_of_the_name_of_its_binary() -> None:
    """Otherwise a changed main.go would go on under the old binary."""
    digests = {recipe.digest((program,)) for program in (recipe.COREDNS_SERVER, recipe.PAUSE_PROGRAM)}
    assert len(digests) == 2
    assert list(recipe.module_folder(recipe.COREDNS).glob("*.go"))


def test_a_network_is_free_where_no_link_and_no_route_uses_it() -> None:
    """Two nodes have networks of their own, and a network of the user's is not shadowed."""
    free = veth.candidates(["lo", "tidemark0"], ["default", "10.213.1.0/24", "172.17.0.0/16"])
    assert [addresses.number for addresses in free[:2]] == [2, 3]
    assert veth.candidates([], ["10.0.0.0/8"]) == []


def test_a_missing_kernel_feature_is_named() -> None:
    """By its own lists; a controller that is compiled in and switched off is missing, too."""
    cgroup = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\nmemory\t4\t9\t0\npids\t8\t1\t1\n"
    assert host_requirements.missing_features("nodev\tproc\n\text4\nnodev\toverlay\n", cgroup) == [
        "the cgroup controller memory"
    ]
    assert "overlayfs" in host_requirements.missing_features("\text4\n", cgroup)[0]


def test_a_missing_kernel_feature_skips_tests_of_a_node_only() -> None:
    """The last line of `make test-cluster` says how many, a line before it why."""
    of_a_node, of_none = "tests/cluster/test_one_node.py", "tests/cluster/whole/test_restore.py"
    options = ["-p", "tests.devcluster.lacking", "-p", "no:cacheprovider", "-rs"]
    some = [of_a_node, f"{of_none}::test_the_guide_has_the_commands_that_are_followed"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *some],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'devcluster'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this kernel lacks overlayfs" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed, 4 skipped"


def test_a_missing_program_is_named_by_its_package(tmp_path: Path) -> None:
    """Each once, however many of its programs are missing."""
    there = {"ip", "nsenter", "unshare", "openssl", "iptables", "nft", "conntrack", "socat"}
    found = host_requirements.missing_packages(which=lambda name: "/x" if name in there else None, cni=tmp_path)
    assert found == ["containerd", "containernetworking-plugins", "runc"]


def test_cgroups_of_both_kinds_are_found() -> None:
    """A machine may have v1, v2, or v1 with v2 beside it."""
    mounts = "proc /proc proc rw 0 0\nc /sys/fs/cgroup/cpu cgroup rw 0 0\nc /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    assert cgroups.hierarchies(mounts) == [
        (Path("/sys/fs/cgroup/cpu"), "cgroup"),
        (Path("/sys/fs/cgroup/unified"), "cgroup2"),
    ]


def test_names_that_the_kernel_knows_are_those_of_the_state_folder(tmp_path: Path) -> None:
    """The same folder, the same names: what a dead node left is found; another folder, other names."""
    first, again, other = (Place(ControlPlaneLayout.of(tmp_path / name)) for name in ("a", "a", "b"))
    assert (first.cgroup, first.hardware_address) == (again.cgroup, again.hardware_address)
    assert first.cgroup != other.cgroup
    assert int(first.hardware_address[:2], 16) & 0b11 == 0b10  # locally administered, of one interface


def test_init_reads_the_plan_that_was_written(tmp_path: Path) -> None:
    """It goes through a file."""
    plan = Plan("/state", 3, (ServerCommand("a", ("/a", "-x"), {"K": "v"}),), (ServerCommand("b", ("/b",)),))
    assert Plan.from_json(plan.as_json()) == plan


def test_every_server_that_shows_a_kubeconfig_has_a_user() -> None:
    """Command lines and configuration files name no other."""
    addresses = Addresses(5)
    tokens = NodeTokens.random()
    commands = [servers.controller_manager(BINARIES), servers.scheduler(BINARIES), servers.kubelet(BINARIES, addresses)]
    named = [argument for command in commands for argument in command.arguments if argument.startswith("--kubeconfig=")]
    named.append(json.loads(settings.kube_proxy())["clientConnection"]["kubeconfig"])
    assert {Path(path.rpartition("=")[2]).name.removesuffix(".kubeconfig") for path in named} == set(tokens.servers)
    for token in tokens.servers.values():
        assert token in tokens.as_csv()
        assert token in server_kubeconfig(addresses.server, token)


def test_people_are_found_among_the_servers_tokens() -> None:
    """One file holds both."""
    tokens = NodeTokens.random()
    assert Tokens.from_csv(tokens.as_csv()) == tokens.people


def test_an_image_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    """And holds the program, where its entry point says."""
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    for name in ("one.tar", "two.tar"):
        archive.write(program, "tidemark.local/pause:1", tmp_path / name)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(tar.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][0])) as layer:
            assert [f"/{name}" for name in layer.getnames()] == config["config"]["Entrypoint"]
    assert manifest["RepoTags"] == ["tidemark.local/pause:1"]
