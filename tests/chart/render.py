"""What helm makes of the chart, kept beside the tests: `python -m tests.chart.render` makes it anew.

The rendered files are for reviewers, who see what a change of a template does, and for the tests that have no time to
compile helm. Their first line names the chart that they were made of, so that a stale one is found without helm; the
slow test makes them again and compares.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.bounds import BOUND
from tidemark_devcluster.build import ensure_helm
from tidemark_devcluster.progress import Progress

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "tidemark"
RENDERED = Path(__file__).parent / "rendered"
NAMESPACE = "tidemark-system"
KUBERNETES = "1.34.0"

# without the CRDs, which stand in crds/ already
CASES = {
    "default": ["--set", "crds.install=false"],
    "confined": [
        *("--set", "crds.install=false"),
        *("--set", "watchNamespaces={team-a,team-b}"),
        *("--set", "networkPolicy.enabled=false"),
        *("--set-string", "operator.image.tag=1", "--set", "imagePullSecrets[0].name=pull"),
        *("--set", "nodeSelector.disk=fast", "--set", "tolerations[0].operator=Exists"),
        *("--set", "priorityClassName=system-cluster-critical"),
    ],
}


def helm(*arguments: str) -> str:
    """Run helm, compiled on first use; raises CalledProcessError with its output."""
    program = ensure_helm(os.environ, Progress(sys.__stderr__ or sys.stderr))
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, timeout=BOUND).stdout


def template(*options: str) -> str:
    return helm("template", "tidemark", str(CHART), "-n", NAMESPACE, "--kube-version", KUBERNETES, *options)


def render(case: str) -> str:
    """One case, under the name of the chart it is made of."""
    return f"# of chart {chart_digest()}\n{template(*CASES[case])}"


def chart_digest() -> str:
    """Names everything that the rendered files depend on."""
    seen = hashlib.sha256(repr(CASES).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file() and "files" not in path.parts):
        seen.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return seen.hexdigest()


if __name__ == "__main__":
    for case in CASES:
        (RENDERED / f"{case}.yaml").write_text(render(case))
