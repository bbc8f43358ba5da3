"""dbt in an environment of its own: it needs another protobuf than we do. pip installs it into the cache, once for each
state of `dbt/constraints.txt`; the adapter itself is the checkout's.

    .venv/bin/python -m tests.dbt.environment     installs it and prints where it is
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bench.harness.cache import cache_folder, cached
from tests.waiting import BOUND

CHECKOUT = Path(__file__).parents[2]
FOLDER = CHECKOUT / "dbt"
QUIET = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DBT_USE_COLORS": "false", "DO_NOT_TRACK": "1"}


def install() -> Path:
    """The environment's folder, made if it is not there (half a minute of CPU)."""
    constraints = FOLDER / "constraints.txt"
    digest = hashlib.sha256(constraints.read_bytes() + sys.version.encode()).hexdigest()[:16]
    return cached(cache_folder() / "dbt" / digest, _make)


def _make(folder: Path) -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", FOLDER / "constraints.txt", *wanted], check=True)


def run(
    program: str, *arguments: str, folder: Path, variables: Mapping[str, str], timeout: float = BOUND, check: int = 0
) -> str:
    """Runs a program of Python in the environment, with the checkout's adapter, until it ends with the exit code
    `check`; what it printed."""
    environment = os.environ | QUIET | {"PYTHONPATH": str(FOLDER)} | dict(variables)
    command = [str(install() / "bin" / "python"), program, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == check, f"{' '.join(command)} ended with {done.returncode}: {said[-8000:]}"
    return said


if __name__ == "__main__":
    print(install())
