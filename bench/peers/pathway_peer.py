"""Pathway, as a process in an environment of its own: `python -m bench.peers.pathway_peer` installs that.

It is no dependency of Tidemark, and not one of its extras: its pins (pyarrow < 26) are not ours, and its licence is the
Business Source License 1.1, which lets anyone run it on one machine, as is done here. Nothing of it is distributed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.harness.answers import WrongAnswer
from bench.harness.cache import cache_folder, cached
from bench.harness.context import progress
from bench.peers.absent import PeerAbsent
from bench.peers.exchange import Handed, PeerRun, taken_back

VERSION = "0.33.0"
_PROGRAM = Path(__file__).parent / "pathway_views" / "program.py"
_SECONDS = 1800
_OTHER_ROWS = 3
"""Its program's exit code where its rows never became the wanted ones."""


def install() -> Path:
    """The environment's interpreter, made if it is not there (1 GB, some minutes)."""
    return cached(_folder(), _make) / "bin" / "python"


def run(handed: Handed) -> PeerRun:
    """The query's times; raises PeerAbsent if it is not installed, WrongAnswer if its rows are wrong."""
    python = _folder() / "bin" / "python"
    if not python.exists():
        raise PeerAbsent(f"Pathway is not installed: python -m {__name__}")
    if not handed.before:
        raise PeerAbsent(f"{handed.query.name} has no rows at this size: nothing tells when Pathway has hydrated")
    wanted = "\n".join(",".join(map(str, row)) for row in handed.before)
    (handed.folder / "wanted.csv").write_text(f"{wanted}\n")
    environment = os.environ | {"PATHWAY_THREADS": str(len(os.sched_getaffinity(0)))}
    environment.pop("PYTHONPATH", None)
    command = [str(part) for part in (python, _PROGRAM, handed.folder, handed.query.name)]
    with (handed.folder / "pathway.log").open("ab") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, env=environment, timeout=_SECONDS)
    if done.returncode:
        output = (handed.folder / "pathway.log").read_text()[-2000:]
        if done.returncode == _OTHER_ROWS:
            raise WrongAnswer(f"Pathway, {handed.query.name}: {output}")
        raise PeerAbsent(f"Pathway ended with {done.returncode} on {handed.query.name}: {output}")
    return taken_back(f"Pathway, {handed.query.name}", handed, done.stdout)


def _folder() -> Path:
    return cache_folder() / "peers" / f"pathway-{VERSION}"


def _make(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", f"pathway=={VERSION}"], check=True)


if __name__ == "__main__":
    progress(f"Pathway {VERSION}: {install()}")
