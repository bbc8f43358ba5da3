"""The commands of the runbooks, as they stand in docs/guides.

```sh            run as it stands, in the order of the page, with the tests' namespace for team-a
```sh copy       likewise, with LOCATION and BACKUP as folders
```sh cluster    needs Helm and pods: tests/cluster has what a node can run of it
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.bounds import BOUND
from tests.tidy.checkout import ROOT

GUIDES = ROOT / "docs" / "guides"
PAGES = (
    "upgrade",
    "resize",
    "backup-and-restore",
    "slow-views",
    "uninstall",
    "secrets",
    "cost",
    "disasters",
)
NAMESPACE = "team-a"
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
    """Somebody who follows a runbook: kubectl with its plugin, a namespace, and a folder for files."""

    kubectl: Path
    kubeconfig: Path
    namespace: str
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(self.kubectl)
        plugin = programs / "kubectl-tidemark"
        plugin.write_text('#!/bin/sh\nexec python -m tidemark_cli "$@"\n')
        plugin.chmod(0o755)
        (self.folder / "crds").symlink_to(ROOT / "crds")

    def run(self, block: Block) -> str:
        """What it prints; an error of any command is one."""
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
        said: dict[str, str] = {}
        for block in blocks(page):
            if block.kind != "sh cluster" and (not headings or block.heading in headings):
                said[block.heading] = said.get(block.heading, "") + self.run(block)
        return said
