"""The certificate flags of replicas, planner and orchestrator, and the errors for wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates.peers import replica
from tests.waiting import BOUND
from tidemark_operator.options import parse
from tidemark_operator.orchestrator.local.orchestrator import ProcessOrchestrator
from tidemark_protocol.tls.folder import CertificateFolder
from tidemark_replica import options
from tidemark_replica.errors import AddressNotUsable


def test_a_replica_listens_on_a_network_address_with_certificates_or_not_at_all(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Commands in clear text would be anybody's."""
    with pytest.raises(SystemExit):
        options.parse(["--listen", "0.0.0.0:7171", "--scratch", "s"])
    assert "a network address needs --tls-dir" in capsys.readouterr().err
    parsed = options.parse(["--listen", "0.0.0.0:7171", "--scratch", "s", "--tls-dir", str(tmp_path)])
    assert parsed.tls is not None
    assert parsed.tls.path == tmp_path


def test_a_replica_without_its_certificate_does_not_listen(tmp_path: Path) -> None:
    """And says which file it misses; it is started again, as for any other reason."""
    with (
        pytest.raises(AddressNotUsable, match=r"cannot listen at unix:.*/tls\.crt cannot be read: No such file"),
        replica(f"unix://{tmp_path}/s", CertificateFolder(tmp_path)),
    ):
        pass
    assert not (tmp_path / "s").exists()


def test_a_planner_without_its_certificate_ends(tmp_path: Path) -> None:
    """Before it has started a JVM."""
    command = [sys.executable, "-m", "tidemark_planner", "--listen", f"unix://{tmp_path}/s", "--tls-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 2
    assert f"{tmp_path}/tls.crt cannot be read" in done.stderr


def test_processes_have_no_certificates_unless_asked_for(tmp_path: Path) -> None:
    """Unix sockets that one user can enter are enough."""
    assert not parse(["--state-dir", str(tmp_path)]).mutual_tls
    assert parse(["--state-dir", str(tmp_path), "--mutual-tls"]).mutual_tls
    assert "--tls-dir" not in ProcessOrchestrator(tmp_path, {})._planner_shape().command


def test_processes_are_told_where_theirs_are(tmp_path: Path) -> None:
    """The planner's and a replica's are two."""
    orchestrator = ProcessOrchestrator(tmp_path, {}, certificates=tmp_path / "certificates")
    command = orchestrator._planner_shape().command
    assert command[command.index("--tls-dir") + 1] == str(tmp_path / "certificates" / "tidemark-planner-tls")
