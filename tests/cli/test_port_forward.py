"""kubectl forwards a port for as long as it is needed, and whatever ends the command ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import BOUND, until
from tidemark.gateway.discovery import Credentials, Gateway
from tidemark.gateway.kubectl import ClientCertificate, Kubectl
from tidemark.gateway.port_forward import Leader, forwarded

KUBECTL = """#!/bin/sh
case "$1" in
get) echo '{"metadata": {}, "endpoints": [{"targetRef": {"name": "pod"}}], "ports": [{"name": "grpc", "port": 1}]}' ;;
create) echo token ;;
port-forward) echo $$ > %s; echo "Forwarding from 127.0.0.1:%d -> 1"; exec sleep 1000 ;;
esac
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A port at which somebody listens and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(BOUND)
        yield listening


@pytest.fixture
def pid(silent: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that writes its process id here when it forwards the port."""
    file, program = tmp_path / "pid", tmp_path / "kubectl"
    program.write_text(KUBECTL % (file, silent.getsockname()[1]))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return file


def is_running(pid: Path) -> bool:
    try:
        os.kill(int(pid.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_keeps_its_own_ways_with_signals(pid: Path) -> None:
    """A library that took SIGTERM would leave it changed in the midst of connections that overlap."""
    leader = Leader(Kubectl(), "ns", "pod", 1, b"")
    before = signal.getsignal(signal.SIGTERM)
    with forwarded(leader) as address:
        assert address.startswith("127.0.0.1:")
        assert is_running(pid)
        assert signal.getsignal(signal.SIGTERM) is before
    assert not is_running(pid)


def test_crash_a_command_that_is_terminated_leaves_no_kubectl(silent: socket.socket, pid: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidemark_cli", "subscribe", "a", "-n", "ns", "--kubeconfig", str(tmp_path / "no")]
    command += ["--service-account", "reader"]
    environment = {name: value for name, value in os.environ.items() if name != "TIDEMARK_GATEWAY_FILE"}
    popen = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with popen as ran, silent.accept()[0]:
        ran.send_signal(signal.SIGTERM)
        ran.communicate(timeout=BOUND)
    assert ran.returncode == 143
    until(lambda: not is_running(pid))


def test_secrets_are_not_printed_with_what_has_them() -> None:
    """A debugger, a log of locals or a failed assertion prints them."""
    shown = repr([Gateway("a", "secret"), Credentials(text="secret"), ClientCertificate(b"public", b"secret")])
    assert "secret" not in shown
    assert "public" in shown
