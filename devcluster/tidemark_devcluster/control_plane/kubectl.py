"""Runs of kubectl."""

import subprocess
from collections.abc import Sequence

from tidemark_devcluster.errors import KubectlFailed

KUBECTL_SECONDS = 300.0


def run_kubectl(
    program: Sequence[str], arguments: Sequence[str], stdin: str | None = None, seconds: float = KUBECTL_SECONDS
) -> str:
    """Run kubectl and return what it prints. `program`: kubectl and its cluster's options. Raises KubectlFailed."""
    command = [*program, *arguments]
    answer = subprocess.run(command, input=stdin or "", capture_output=True, text=True, timeout=seconds, check=False)
    if answer.returncode != 0:
        raise KubectlFailed(f"kubectl {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout
