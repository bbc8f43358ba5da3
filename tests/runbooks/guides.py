"""The commands of the runbooks, as they stand in docs.

```sh            run as it stands, in the order of the page, with the tests' namespace for team-a
```sh copy       likewise, with LOCATION and BACKUP as folders
```sh cluster    needs Helm and pods: test_with_helm.py runs what a control plane can, tests/cluster what a node can
```sh usage      shows how a command is used, without an end or with what is the reader's own

Commands of all kinds are asked of their programs, which know their flags (test_usage.py).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.tidy.checkout import ROOT
from tests.waiting import BOUND

DOCS = ROOT / "docs"
GUIDES = DOCS / "guides"
PAGES = (
    "install",
    "upgrade",
    "resize",
    "backup-and-restore",
    "slow-views",
    "uninstall",
    "secrets",
    "cost",
    "disasters",
    "operations",
    "subscribes-and-copies",
    "http",
    "psql",
    "object-stores",
    "sources",
    "delta",
    "kafka",
    "written-tables",
    "postgres",
    "refreshes-and-ends",
    "published-tables",
    "postgres-sink",
    "kafka-sink",
    "../operator",
    "../reference/conditions",
    "../reference/dialects",
    "../reference/introspection",
)
TUTORIAL = "../tutorial"
"""Followed on a running demo (tests/e2e/demo/test_demo.py), with what it prints: tutorial.py."""
RUN = ("sh", "sh copy")
NAMESPACE = "team-a"
OF_READERS = {"NEW_KEY": "a", "NEW_SECRET": "b"}
"""The values that a reader has to fill in."""
_PART = re.compile(r"^(?:#+ +(?P<heading>.+?) *|```(?P<kind>sh[a-z ]*)\n(?P<text>.*?)^```)$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block of commands, and the heading that it stands below."""

    heading: str
    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    """All of a page's, in order."""
    heading, found = "", []
    for part in _PART.finditer((GUIDES / f"{page}.md").read_text()):
        if part["heading"]:
            heading = part["heading"]
        else:
            found.append(Block(heading, part["kind"], part["text"]))
    return found


@dataclass(frozen=True)
class Shell:
    """Somebody who follows a runbook in a checkout: kubectl with its plugin, helm, a namespace, a folder for files."""

    kubectl: Path
    kubeconfig: Path
    namespace: str
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    helm: Path | None = None

    def prepare(self) -> None:
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(self.kubectl)
        plugin = programs / "kubectl-tidemark"
        plugin.write_text('#!/bin/sh\nexec python -m tidemark_cli "$@"\n')
        plugin.chmod(0o755)
        if self.helm is not None:
            (programs / "helm").symlink_to(self.helm)
        for name in ("crds", "helm"):
            (self.folder / name).symlink_to(ROOT / name)

    def run(self, block: Block) -> str:
        """The output of the commands; an error of any is raised."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text.replace(NAMESPACE, self.namespace)],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig), **self.environ},
            capture_output=True,
            text=True,
            timeout=4 * BOUND,
            check=False,
        )
        assert done.returncode == 0, f"{block.heading}:\n{block.text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, page: str, *headings: str) -> dict[str, str]:
        """Runs all blocks of a page, or of some of its headings; what was printed below each."""
        settings: dict[str, str] = {}
        for block in blocks(page):
            if block.kind in RUN and (not headings or block.heading in headings):
                settings[block.heading] = settings.get(block.heading, "") + self.run(block)
        return settings
