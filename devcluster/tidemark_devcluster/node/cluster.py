"""One node in one state folder: `up`, `down`, `status`.

    up:   lock ─► remove what a dead node left ─► files ─► veth, cgroups ─► unshare ─► init ─► API server
          ─► images of the node ─► DNS ─► Ready
    down: lock ─► SIGKILL of init ─► cgroups, files

A node is for tests and for trying things out: it begins empty, and nothing of it outlives `down`.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.control_plane import api, processes
from tidemark_devcluster.control_plane.credentials import Tokens
from tidemark_devcluster.control_plane.kubectl import KUBECTL_SECONDS, run_kubectl
from tidemark_devcluster.control_plane.layout import ControlPlaneLayout
from tidemark_devcluster.control_plane.processes import ProcessIdentity
from tidemark_devcluster.errors import ImageFailed, KubectlFailed, StartFailed
from tidemark_devcluster.node import cgroups, host_requirements, process_tree, veth
from tidemark_devcluster.node.binaries import NodeBinaries
from tidemark_devcluster.node.node_layout import API_PORT, CONTAINERD_SOCKET, INIT, NODE_NAME, Addresses, Place
from tidemark_devcluster.node.start import start
from tidemark_devcluster.programs.cache import GIB, require_disk, require_memory

READY_SECONDS = 240.0
POLL_SECONDS = 0.1
LOG_TAIL_LINES = 12
START_MEMORY = 2 * GIB
START_DISK = 2 * GIB
IMPORT_SECONDS = 900.0
GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class NodeStatus:
    """The running node: pids on the host, and whether pods would run and find each other by name."""

    server: str | None
    ready: bool
    pids: Mapping[str, int]


class OneNode:
    """The one-node cluster of a state folder. Holds nothing that is not there: any process may use one."""

    def __init__(self, state: Path, kubeconfig: Path | None = None) -> None:
        self.layout = ControlPlaneLayout.of(state, kubeconfig)
        self.place = Place(self.layout)

    @classmethod
    @contextmanager
    def started(cls, state: Path, binaries: NodeBinaries) -> Iterator["OneNode"]:
        """A node for tests: up on entry, gone with its state on exit, its processes also when this process dies."""
        node = cls(state)
        try:
            node.up(binaries, die_with_starter=True)
            yield node
        finally:
            node.down()

    def up(self, binaries: NodeBinaries, die_with_starter: bool = False) -> None:
        """Make the node run, and wait until it is Ready and has DNS. One that runs is left alone."""
        host_requirements.require_all()
        self.place.make()
        with self.layout.locked():
            if self._init() is None:
                require_memory(START_MEMORY, "a node")
                require_disk(self.place.root, START_DISK, "a node", "--state")
                self._end()
                self.place.clear()
                self.place.make()
                try:
                    start(self, binaries, die_with_starter)
                except BaseException:
                    self._end()
                    raise
            self.wait("the node Ready, with DNS", lambda: self.status().ready)

    def down(self) -> None:
        """End the node and remove all that is left of it."""
        if not self.layout.lock.exists():
            return
        with self.layout.locked():
            self._end()
            self.place.clear()
        self.layout.remove()

    def status(self) -> NodeStatus:
        """The present state of the node."""
        init, addresses = self._init(), veth.find_own(self.place)
        if init is None or addresses is None:
            return NodeStatus(None, False, {})
        pids = {INIT: init} | {
            name: pid for pid in process_tree.children(init) if (name := process_tree.program_name(pid))
        }
        return NodeStatus(addresses.server, self.serves(addresses) and self._pods_run(), pids)

    def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        kubeconfig: Path | None = None,
        seconds: float = KUBECTL_SECONDS,
    ) -> str:
        """Run kubectl against this node's API server and return what it prints."""
        return run_kubectl(self.layout.kubectl_for(kubeconfig or self.layout.kubeconfig), arguments, stdin, seconds)

    def enter(self, *command: str) -> list[str]:
        """The command line that runs a program inside the node's namespaces."""
        if (init := self._init()) is None:
            raise StartFailed(f"no node runs in {self.place.root}: start it with `tidemark-devcluster node up`")
        return [host_requirements.find("nsenter"), f"--target={init}", "--mount", "--pid", "--net", "--", *command]

    def load(self, image: Path) -> None:
        """Give the node an image, as an archive of docker or OCI."""
        self._ctr(["images", "import", "-"], image)

    def tag(self, image: str, name: str) -> None:
        """Give an image that the node has another name besides; both are whole: docker.io/NAME:TAG."""
        self._ctr(["images", "tag", "--force", image, name], Path(os.devnull))

    def _ctr(self, arguments: Sequence[str], stdin: Path) -> None:
        command = self.enter(
            host_requirements.find("ctr"), f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", *arguments
        )
        with stdin.open("rb") as content:
            answer = subprocess.run(
                command, stdin=content, capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False
            )
        if answer.returncode != 0:
            output = answer.stderr.strip() or answer.stdout.strip()
            raise ImageFailed(f"the node did not take an image ({' '.join(arguments)} < {stdin}): {output}")

    def serves(self, addresses: Addresses) -> bool:
        """Whether the API server answers the administrator."""
        try:
            token = Tokens.from_csv(self.layout.tokens.read_text(encoding="utf-8")).administrator
        except FileNotFoundError:
            return False
        return api.answers(API_PORT, self.layout.certificate, token, "/readyz", addresses.node)

    def wait(self, what: str, condition: Callable[[], bool], outer: ProcessIdentity | None = None) -> None:
        """Wait until `condition` holds or the node's first process has ended (`outer`, or the recorded one)."""
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            if not outer.is_running() if outer else processes.running(self.layout.pid_file(INIT)) is None:
                raise StartFailed(f"the node ended while starting; {self.layout.log(INIT)} ends:\n{self._tail(INIT)}")
            if time.monotonic() > deadline:
                logs = self.layout.log(INIT).parent
                raise StartFailed(f"{what}: not within {READY_SECONDS:.0f} s; what the servers said is in {logs}")
            time.sleep(POLL_SECONDS)

    def _init(self) -> int | None:
        """The pid of the first process of the namespaces, on the host."""
        outer = processes.running(self.layout.pid_file(INIT))
        return process_tree.first_child(outer.pid) if outer is not None else None

    def _pods_run(self) -> bool:
        """Whether the node is Ready and DNS answers."""
        ready = '--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        available = "--output=jsonpath={.status.availableReplicas}"
        try:
            if self.kubectl("get", "node", NODE_NAME, ready) != "True":
                return False
            return self.kubectl("get", "-n=kube-system", "deployment/coredns", available) == "1"
        except KubectlFailed:
            return False

    def _end(self) -> None:
        """End all processes of the node, and remove what the kernel keeps of it."""
        if (outer := processes.running(self.layout.pid_file(INIT))) is not None:
            process_tree.kill_first_child(outer.pid)
            processes.stop(outer, GRACE_SECONDS)
        self.layout.pid_file(INIT).unlink(missing_ok=True)
        veth.remove(self.place)
        cgroups.remove(self.place.cgroup)

    def _tail(self, name: str) -> str:
        output = self.layout.log(name).read_text(encoding="utf-8", errors="replace")
        return "\n".join(output.splitlines()[-LOG_TAIL_LINES:])
