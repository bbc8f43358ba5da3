"""One control plane in one state folder: `up`, `down`, `status`.

    up:  lock ─► adopt what runs ─► etcd ─► kube-apiserver ─► /readyz ─► kubeconfig ─► controller manager ─► ready
    down: lock ─► the same three in reverse order, each by pid and start time

`up` also repairs: it leaves running servers alone, and restarts dead ones on the same data and port. A failed `up` ends
the servers that it started. `down` keeps the state folder; `delete` removes it.
"""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.control_plane import processes
from tidemark_devcluster.control_plane.commands import SERVERS
from tidemark_devcluster.control_plane.kubectl import run_kubectl
from tidemark_devcluster.control_plane.layout import ControlPlaneLayout
from tidemark_devcluster.control_plane.processes import ProcessIdentity
from tidemark_devcluster.control_plane.start import Start, StartOptions, is_ready, running, server_url, stop
from tidemark_devcluster.errors import KubectlFailed, StartFailed
from tidemark_devcluster.programs.build import Binaries

_ESTABLISHED_SECONDS = 110


@dataclass(frozen=True)
class ControlPlaneStatus:
    """The running servers, with pid and resident memory, and whether the API server answers."""

    server: str | None
    ready: bool
    pids: Mapping[str, int]
    resident_bytes: Mapping[str, int]


class ControlPlane:
    """The control plane of a state folder. All state is in the folder, so any process may use one."""

    def __init__(self, state: Path, kubeconfig: Path | None = None) -> None:
        """`kubeconfig` is where to write the administrator's; by default into the state folder."""
        self.layout = ControlPlaneLayout.of(state, kubeconfig)

    @classmethod
    @contextmanager
    def started(cls, state: Path, binaries: Binaries) -> Iterator["ControlPlane"]:
        """A control plane for tests: up on entry, gone with its state on exit, and when this process dies."""
        plane = cls(state)
        try:
            plane.up(binaries, StartOptions(durable=False, die_with_starter=True))
            yield plane
        finally:
            plane.delete()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
        return self.layout.kubeconfig

    @property
    def outsider_kubeconfig(self) -> Path:
        """The kubeconfig of an authenticated user without any right."""
        return self.layout.outsider_kubeconfig

    def up(self, binaries: Binaries, options: StartOptions) -> tuple[str, ...]:
        """Make the control plane run: adopt, repair, or start. Ready on return; the names of the servers started."""
        if platform.system() != "Linux":
            raise StartFailed("the control plane runs on Linux only: use a Linux machine, container or WSL")
        self.layout.make()
        with self.layout.locked():
            return Start(self.layout, binaries, options).run()

    def down(self) -> None:
        """End the servers that this state folder knows, and no other process. Data stay."""
        if not self.layout.lock.exists():
            return
        with self.layout.locked():
            for name in reversed(SERVERS):
                stop(self.layout, name)

    def delete(self) -> None:
        """End the servers and remove their data, keys and kubeconfigs; nothing else that is in the folder."""
        self.down()
        if self.layout.lock.exists():
            self.layout.remove()

    def status(self) -> ControlPlaneStatus:
        """The servers that run now, and whether the API server is ready."""
        alive = {name: who for name in SERVERS if (who := self.running(name)) is not None}
        port = self.layout.stored_port()
        return ControlPlaneStatus(
            server=server_url(port) if port else None,
            ready=len(alive) == len(SERVERS) and is_ready(self.layout),
            pids={name: who.pid for name, who in alive.items()},
            resident_bytes={name: processes.resident_bytes(who) for name, who in alive.items()},
        )

    def running(self, name: str) -> ProcessIdentity | None:
        """The process of one server, if it is alive."""
        return running(self.layout, name)

    def died(self) -> tuple[str, ...]:
        """The servers that were started and have ended, though nobody stopped them."""
        return tuple(name for name in SERVERS if self.layout.pid_file(name).exists() and self.running(name) is None)

    def serve(self, kinds: Path) -> None:
        """Apply the CustomResourceDefinitions of a file or folder; each of them is served on return."""
        apply_kinds(self.kubectl, kinds)

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl against this control plane and return what it prints."""
        return run_kubectl(self.layout.kubectl_for(kubeconfig or self.kubeconfig), arguments, stdin)


def apply_kinds(kubectl: Callable[..., str], kinds: Path) -> None:
    """Apply CustomResourceDefinitions by `kubectl`, a function of its arguments; each of them is served on return."""
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(kinds))
    waited = ("wait", "--for=condition=Established", f"--timeout={_ESTABLISHED_SECONDS}s", "-f", str(kinds))
    deadline = time.monotonic() + _ESTABLISHED_SECONDS
    while True:
        try:
            kubectl(*waited)
            return
        except KubectlFailed as error:
            if not _has_no_conditions_yet(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _has_no_conditions_yet(error: KubectlFailed) -> bool:
    """Whether kubectl failed because the conditions are null, as they are for a moment after a definition is
    created."""
    return "accessor error: <nil>" in str(error)
