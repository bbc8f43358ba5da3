"""kubectl against the API server of a state folder."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tidemark_devcluster.control_plane.layout import ControlPlaneLayout
from tidemark_devcluster.errors import KubectlFailed

KUBECTL_SECONDS = 300.0


def run_kubectl(
    layout: ControlPlaneLayout,
    kubeconfig: Path,
    arguments: Sequence[str],
    stdin: str | None,
    seconds: float = KUBECTL_SECONDS,
) -> str:
    """Run kubectl and return what it prints."""
    command = [str(layout.kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={layout.root / 'kubectl'}", *arguments]
    answer = subprocess.run(command, input=stdin or "", capture_output=True, text=True, timeout=seconds, check=False)
    if answer.returncode != 0:
        raise KubectlFailed(f"kubectl {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout
