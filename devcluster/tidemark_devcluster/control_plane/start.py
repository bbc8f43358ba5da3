"""One run of `up`: start the servers that do not run, in order, and wait until they are ready.

    adopt what runs ─► etcd ─► kube-apiserver ─► /readyz ─► kubeconfigs ─► controller manager ─► ready

A wait fails early when a server that it depends on dies; the error has the end of that server's log. A failed start
ends the servers that it started.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidemark_devcluster.control_plane import api, commands, credentials, processes
from tidemark_devcluster.control_plane.commands import APISERVER, CONTROLLER_MANAGER, ETCD, SERVERS, ServerCommand
from tidemark_devcluster.control_plane.credentials import Tokens
from tidemark_devcluster.control_plane.layout import ControlPlaneLayout, link_program, write_private
from tidemark_devcluster.control_plane.processes import ProcessIdentity
from tidemark_devcluster.errors import PortTaken, StartFailed, StateUnusable
from tidemark_devcluster.programs.build import Binaries
from tidemark_devcluster.programs.cache import GIB, require_disk, require_memory

READY_SECONDS = 240.0
POLL_SECONDS = 0.05
GRACE_SECONDS = 8.0
FAILED_GRACE_SECONDS = 1.0
PORT_ATTEMPTS = 3
LOG_TAIL_LINES = 12
LOG_KEPT_BYTES = 8 << 20
START_MEMORY = 3 * GIB // 4
START_DISK = GIB // 2
# the serving certificate lives for a year and is not renewed by the API server
CERTIFICATE_SECONDS = 300 * 24 * 3600.0


@dataclass(frozen=True)
class StartOptions:
    """Options of a start: `port` None takes any free one; without `durable` etcd skips fsync (tests)."""

    port: int | None = None
    durable: bool = True
    die_with_starter: bool = False


def server_url(port: int) -> str:
    return f"https://127.0.0.1:{port}"


def running(layout: ControlPlaneLayout, name: str) -> ProcessIdentity | None:
    """The process of one server, if it is alive."""
    return processes.running(layout.pid_file(name))


def stop(layout: ControlPlaneLayout, name: str) -> None:
    """End one server if it is alive, and forget it."""
    if (identity := running(layout, name)) is not None:
        processes.stop(identity, GRACE_SECONDS)
    layout.pid_file(name).unlink(missing_ok=True)


def is_ready(layout: ControlPlaneLayout, path: str = "/readyz") -> bool:
    """Whether the API server answers the administrator."""
    port = layout.stored_port()
    try:
        tokens = Tokens.from_csv(layout.tokens.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return port is not None and api.answers(port, layout.certificate, tokens.administrator, path)


def choose_port(wanted: int | None, last: int | None) -> int:
    """The port that was asked for, else that of the last time, else any that is free."""
    if wanted is None:
        return last if last is not None and api.port_is_free(last) else api.free_port()
    if not api.port_is_free(wanted):
        raise PortTaken(
            f"port {wanted} of 127.0.0.1 is taken by another program: give another with --port, "
            f"or find who has it with `ss -ltnp sport = :{wanted}`"
        )
    return wanted


class AdoptedServerEnded(Exception):
    """A server that ran when `up` looked has ended since: it is started like one that did not run."""


class Start:
    """One run of `up`, while the state folder's lock is held."""

    def __init__(self, layout: ControlPlaneLayout, binaries: Binaries, options: StartOptions) -> None:
        self._layout = layout
        self._binaries = binaries
        self._options = options
        self._servers: dict[str, ProcessIdentity] = {}
        self._started: list[ProcessIdentity] = []
        self._log_began: dict[str, int] = {}

    def run(self) -> tuple[str, ...]:
        """Make all three run and be ready, or end what this run started. Returns the names of those it started."""
        try:
            for _ in SERVERS:
                try:
                    self._run()
                    return tuple(name for name in SERVERS if self._servers.get(name) in self._started)
                except AdoptedServerEnded:
                    continue
            raise StartFailed(f"the servers in {self._layout.root} keep ending: their logs are in its log/")
        except BaseException:
            for identity in reversed(self._started):
                processes.stop(identity, FAILED_GRACE_SECONDS)
            raise

    def _run(self) -> None:
        wanted = SERVERS if self._binaries.kube_controller_manager else (ETCD, APISERVER)
        if any(running(self._layout, name) is None for name in wanted):
            require_memory(START_MEMORY, "the control plane")
            require_disk(self._layout.root, START_DISK, "the control plane")
        link_program(self._layout.kubectl, self._binaries.kubectl)
        tokens = self._ensure_credentials()
        self._ensure(commands.etcd(self._binaries.etcd, self._layout, self._options.durable))
        port = self._ensure_apiserver()
        if self._write_kubeconfigs(port, tokens):
            stop(self._layout, CONTROLLER_MANAGER)  # one that runs knows another address
        if self._binaries.kube_controller_manager is None:
            return
        self._ensure(commands.controller_manager(self._binaries.kube_controller_manager, self._layout))
        self._wait("the default service account", SERVERS, api.DEFAULT_ACCOUNT)

    def _ensure_credentials(self) -> Tokens:
        """The tokens and the key, made at the first start and kept from then on."""
        layout = self._layout
        if not layout.service_account_key.exists():
            write_private(layout.service_account_key, credentials.service_account_key())
        if not layout.tokens.exists():
            write_private(layout.tokens, Tokens.random().as_csv())
        return Tokens.from_csv(layout.tokens.read_text(encoding="utf-8"))

    def _write_kubeconfigs(self, port: int, tokens: Tokens) -> bool:
        """Write both kubeconfigs where they differ; tells whether they did."""
        certificate = self._layout.certificate.read_text(encoding="ascii")
        changed = False
        for path, user, token in (
            (self._layout.kubeconfig, "administrator", tokens.administrator),
            (self._layout.outsider_kubeconfig, "outsider", tokens.outsider),
        ):
            text = credentials.kubeconfig(server_url(port), certificate, user, token)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                write_private(path, text)
                changed = True
        return changed

    def _ensure(self, command: ServerCommand) -> None:
        """Start a server unless it runs."""
        if (adopted := self._running_server(command.name)) is not None:
            self._servers[command.name] = adopted
            return
        log = self._layout.log(command.name)
        size = log.stat().st_size if log.exists() else 0
        if size > LOG_KEPT_BYTES:
            os.replace(log, log.with_suffix(".log.1"))
            size = 0
        self._log_began[command.name] = size
        identity = processes.start(
            command.arguments,
            {"PATH": os.defpath, "HOME": str(self._layout.root), **command.environment},
            self._layout.root,
            log,
            self._layout.pid_file(command.name),
            self._options.die_with_starter,
        )
        self._started.append(identity)
        self._servers[command.name] = identity

    def _running_server(self, name: str) -> ProcessIdentity | None:
        """A server that runs: one of this run's, or one that is recorded."""
        mine = self._servers.get(name)
        return mine if mine is not None and mine.is_running() else running(self._layout, name)

    def _ensure_apiserver(self) -> int:
        """The port of an API server that is ready."""
        stored = self._layout.stored_port()
        if (adopted := self._running_server(APISERVER)) is not None and stored is not None:
            if self._options.port not in (None, stored):
                raise StateUnusable(
                    f"the control plane in {self._layout.root} runs on port {stored}: end it with `down` first"
                )
            self._servers[APISERVER] = adopted
            self._wait("kube-apiserver", (ETCD, APISERVER), "/readyz")
            return stored
        self._drop_old_certificate()
        return self._start_apiserver(stored)

    def _start_apiserver(self, stored: int | None) -> int:
        """Start the API server on the requested port, else on the last one, else on a free one.

        Another program may take a free port before the server listens on it: then another free port is tried.
        """
        for attempt in range(PORT_ATTEMPTS):
            port = choose_port(self._options.port, stored if attempt == 0 else None)
            self._layout.store_port(port)
            self._ensure(commands.apiserver(self._binaries.kube_apiserver, self._layout, port))
            try:
                self._wait("kube-apiserver", (ETCD, APISERVER), "/readyz")
                return port
            except StartFailed:
                if self._options.port is not None or "address already in use" not in self._tail(APISERVER):
                    raise
        raise StartFailed(f"{PORT_ATTEMPTS} free ports were taken by others before use: try again, or give --port")

    def _drop_old_certificate(self) -> None:
        """Let the API server make a new certificate before the old one ends."""
        with suppress(FileNotFoundError):
            if time.time() - self._layout.certificate.stat().st_mtime > CERTIFICATE_SECONDS:
                self._layout.certificate.unlink()

    def _wait(self, what: str, needed: Sequence[str], path: str) -> None:
        """Wait until the API server answers `path`, as long as all of `needed` live."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            for name in needed:
                if not self._servers[name].is_running():
                    if self._servers[name] not in self._started:
                        raise AdoptedServerEnded(name)
                    raise StartFailed(f"{name} ended while starting; its log ends:\n{self._tail(name)}")
            if is_ready(self._layout, path):
                return
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"{what} was not ready within {READY_SECONDS:.0f} s; {self._layout.log(needed[-1])} ends:\n"
                    + self._tail(needed[-1])
                )
            time.sleep(POLL_SECONDS)

    def _tail(self, name: str) -> str:
        """The last words of a server, of those it said since this run started it."""
        output = self._layout.log(name).read_bytes()[self._log_began.get(name, 0) :]
        return "\n".join(output.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:])
