"""`python -m tidemark_devcluster.node.init PLAN`: the first process of a node's namespaces.

    mounts ─► wait for the interface ─► first servers ─► API server ready ─► the others ─► reap, start again, …

It starts a server that ended again after a second, and reaps orphaned processes. It runs until it is killed; then the
kernel ends all processes of the node.
"""

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.control_plane import api
from tidemark_devcluster.control_plane.commands import ServerCommand
from tidemark_devcluster.control_plane.credentials import Tokens
from tidemark_devcluster.errors import DevClusterError, StartFailed
from tidemark_devcluster.node import veth
from tidemark_devcluster.node.isolation import isolate
from tidemark_devcluster.node.node_layout import API_PORT, INSIDE, Addresses
from tidemark_devcluster.node.servers import LAYOUT, Plan

INTERFACE_SECONDS = 120.0
POLL_SECONDS = 0.1
TICK_SECONDS = 1.0
RESTART_SECONDS = 1.0
LOG_KEPT_BYTES = 8 << 20


@dataclass
class NodeServer:
    """One server that should run."""

    command: ServerCommand
    pid: int | None = None
    not_before: float = 0.0

    def start(self) -> None:
        log = LAYOUT.log(self.command.name)
        if log.exists() and log.stat().st_size > LOG_KEPT_BYTES:
            os.replace(log, log.with_suffix(".log.1"))
        output = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.pid = os.posix_spawn(
            self.command.arguments[0],
            self.command.arguments,
            {"PATH": os.defpath, "HOME": str(INSIDE), **self.command.environment},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), output, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
        )

    def record_end(self, status: int) -> None:
        print(f"{self.command.name} ended ({os.waitstatus_to_exitcode(status)}), starting it again", flush=True)
        self.pid, self.not_before = None, time.monotonic() + RESTART_SECONDS


def main(plan_file: str) -> None:
    """Never returns, unless the node cannot be made at all."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    plan = Plan.from_json(Path(plan_file).read_text(encoding="utf-8"))
    isolate(Path(plan.state))
    os.chdir(INSIDE)
    _wait_for_interface()
    veth.configure_inside(Addresses(plan.number))
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
    _serve(plan)


def _wait_for_interface() -> None:
    """The host gives it when it has seen this namespace."""
    deadline = time.monotonic() + INTERFACE_SECONDS
    while True:
        with suppress(OSError):
            socket.if_nametoindex(veth.INSIDE_NAME)
            return
        if time.monotonic() > deadline:
            raise StartFailed(f"nobody gave {veth.INSIDE_NAME} to the node within {INTERFACE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def _serve(plan: Plan) -> None:
    servers = [NodeServer(command) for command in plan.first]
    waiting = plan.then
    while True:
        for server in servers:
            if server.pid is None and time.monotonic() >= server.not_before:
                server.start()
        if waiting and _api_is_ready(Addresses(plan.number)):
            servers += [NodeServer(command) for command in waiting]
            waiting = ()
            continue
        signal.sigtimedwait([signal.SIGCHLD], POLL_SECONDS if waiting else TICK_SECONDS)
        _reap(servers)


def _api_is_ready(addresses: Addresses) -> bool:
    try:
        token = Tokens.from_csv(LAYOUT.tokens.read_text(encoding="utf-8")).administrator
    except FileNotFoundError:
        return False
    return api.answers(API_PORT, LAYOUT.certificate, token, "/readyz", addresses.node)


def _reap(servers: list[NodeServer]) -> None:
    """Reap every child that ended: servers, and orphaned processes."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for server in servers:
            if server.pid == pid:
                server.record_end(status)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except DevClusterError as error:
        print(error, flush=True)
        sys.exit(1)
