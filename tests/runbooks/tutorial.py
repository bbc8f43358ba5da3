"""The tutorial, followed word for word: each command runs, and prints in the end what the page says that it prints.

```sh         run in the order of the page, in one folder
```text       what the block before prints once the system has come so far: the block is run again until it does
```sh usage   not run: it has no end
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.runbooks.guides import DOCS
from tests.waiting import BOUND, until

_PART = re.compile(r"^```sh\n(?P<commands>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    commands: str
    printed: str | None
    """The last lines that it prints; None: whatever it likes."""


def steps() -> list[Step]:
    """All of the page's, in order."""
    return [Step(part["commands"], part["printed"]) for part in _PART.finditer((DOCS / "tutorial.md").read_text())]


def follow(folder: Path, environ: Mapping[str, str]) -> None:
    """From the first command to the last, in this folder."""
    for step in steps():
        if step.printed is None:
            done = run(step, folder, environ)
            assert done.returncode == 0, f"{step.commands}\n{done.stdout}{done.stderr}"
        else:
            wait_for_output(step, folder, environ)


def wait_for_output(step: Step, folder: Path, environ: Mapping[str, str]) -> None:
    """Runs it again until it ends with what the page says."""
    last = ""

    def prints() -> bool:
        nonlocal last
        done = run(step, folder, environ)
        last = done.stdout + done.stderr
        return done.returncode == 0 and done.stdout.endswith(step.printed or "")

    try:
        until(prints)
    except AssertionError:
        raise AssertionError(f"{step.commands}\nprinted\n{last}\nand not\n{step.printed}") from None


def run(step: Step, folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", step.commands],
        cwd=folder,
        env=dict(environ),
        capture_output=True,
        text=True,
        timeout=2 * BOUND,
        check=False,
    )
