"""Starts a node that does not run: files, veth, cgroups, processes, kubeconfigs, its own two images, DNS.

Each step may be cut short: what it made is found by the next `up` or `down`, by names made of the state folder's path.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tidemark_devcluster.control_plane import credentials, processes
from tidemark_devcluster.control_plane.credentials import Tokens
from tidemark_devcluster.control_plane.layout import ControlPlaneLayout, link_program, write_private
from tidemark_devcluster.control_plane.processes import ProcessIdentity
from tidemark_devcluster.errors import ImageFailed, KubectlFailed
from tidemark_devcluster.node import archive, cgroups, host_requirements, process_tree, servers, settings, veth
from tidemark_devcluster.node.binaries import NodeBinaries
from tidemark_devcluster.node.credentials import NodeTokens, make_client_certificate, server_kubeconfig
from tidemark_devcluster.node.node_layout import INIT, Addresses, Place

DNS_MANIFEST = Path(__file__).with_name("dns.yaml")
PACKAGE_ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private")


class StartedNode(Protocol):
    """The methods of `cluster.OneNode` that a start calls."""

    @property
    def layout(self) -> ControlPlaneLayout: ...

    @property
    def place(self) -> Place: ...

    def kubectl(self, *arguments: str) -> str: ...

    def load(self, image: Path) -> None: ...

    def serves(self, addresses: Addresses) -> bool: ...

    def wait(self, what: str, condition: Callable[[], bool], outer: ProcessIdentity | None = None) -> None: ...


def start(node: StartedNode, binaries: NodeBinaries, die_with_starter: bool) -> None:
    """Start it, and return when the API server has all that pods need; the node itself may not be Ready yet."""
    addresses = veth.make(node.place)
    tokens = NodeTokens.random()
    _write_files(node.place, addresses, tokens, binaries)
    cgroups.make(node.place.cgroup)
    _start_init(node, addresses, die_with_starter)
    node.wait("kube-apiserver", lambda: node.serves(addresses))
    _write_kubeconfigs(node.layout, addresses, tokens.people)
    for program, image in ((binaries.pause, settings.PAUSE_IMAGE), (binaries.coredns, settings.COREDNS_IMAGE)):
        _load_program(node, program, image)
    # the namespace kube-system and the right to bind roles come a moment after the API server is ready
    node.wait("the API server's own objects", lambda: _applies(node, DNS_MANIFEST))


def _write_files(place: Place, addresses: Addresses, tokens: NodeTokens, binaries: NodeBinaries) -> None:
    config = place.root / "config"
    write_private(place.layout.service_account_key, credentials.service_account_key())
    write_private(place.layout.tokens, tokens.as_csv())
    make_client_certificate(place)
    files = settings.files(addresses, place.cgroup)
    for name, token in tokens.servers.items():
        files[f"{name}.kubeconfig"] = server_kubeconfig(addresses.server, token)
    for name, text in files.items():
        (config / name).parent.mkdir(exist_ok=True)
        write_private(config / name, text)
    write_private(place.plan, servers.plan(place.root, addresses, binaries).as_json())
    link_program(place.layout.kubectl, binaries.plane.kubectl)


def _start_init(node: StartedNode, addresses: Addresses, die_with_starter: bool) -> None:
    """Start the first process, and give it the veth once it has a network namespace."""
    command = [host_requirements.find("unshare"), *NAMESPACES, "--", sys.executable, "-m", f"{__package__}.init"]
    outer = processes.start(
        [*command, str(node.place.plan)],
        {"PATH": host_requirements.SYSTEM_PATH, "PYTHONPATH": str(PACKAGE_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        node.place.root,
        node.layout.log(INIT),
        node.layout.pid_file(INIT),
        die_with_starter,
    )
    here = process_tree.network_namespace(os.getpid())
    node.wait("a network namespace", lambda: process_tree.network_namespace(outer.pid) not in (None, here), outer)
    veth.give(addresses, outer.pid)


def _write_kubeconfigs(layout: ControlPlaneLayout, addresses: Addresses, people: Tokens) -> None:
    certificate = layout.certificate.read_text(encoding="ascii")
    for path, user, token in (
        (layout.kubeconfig, "administrator", people.administrator),
        (layout.outsider_kubeconfig, "outsider", people.outsider),
    ):
        write_private(path, credentials.kubeconfig(addresses.server, certificate, user, token))


def _load_program(node: StartedNode, program: Path, image: str) -> None:
    with tempfile.NamedTemporaryFile(dir=node.place.root / "images", suffix=".tar") as packed:
        archive.write(program, image, Path(packed.name))
        node.wait("containerd", lambda: _takes(node, Path(packed.name)))


def _takes(node: StartedNode, image: Path) -> bool:
    try:
        node.load(image)
    except ImageFailed:
        return False
    return True


def _applies(node: StartedNode, manifest: Path) -> bool:
    try:
        node.kubectl("apply", "--filename", str(manifest))
    except KubectlFailed:
        return False
    return True
