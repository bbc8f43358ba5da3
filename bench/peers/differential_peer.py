"""differential-dataflow, as a process: a small Rust program (`differential/`), compiled into the cache when needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

from bench.harness.cache import cache_folder, cached
from bench.harness.context import progress
from bench.peers.absent import PeerAbsent
from bench.peers.exchange import Handed, PeerRun, taken_back

_CRATE = Path(__file__).parent / "differential"
_NAME = "tidemark-peer-differential"
_SECONDS = 1800


def install() -> Path:
    """The program, compiled if its sources changed (a few minutes the first time); raises PeerAbsent."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise PeerAbsent("cargo is not on PATH: install Rust to compare with differential-dataflow")
    sources = sorted(_CRATE.glob("Cargo.*")) + sorted(_CRATE.glob("src/*.rs"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    return cached(cache_folder() / "peers" / f"differential-{key}", partial(_compile, cargo)) / _NAME


def run(handed: Handed, workers: int | None = None) -> PeerRun:
    """The query's times; raises PeerAbsent if it cannot be compiled, WrongAnswer if its rows are wrong."""
    threads = workers or len(os.sched_getaffinity(0))
    command = [str(part) for part in (install(), handed.folder, handed.query.name, threads)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=_SECONDS).stdout
    return taken_back(f"differential-dataflow, {handed.query.name}", handed, printed)


def _compile(cargo: str, folder: Path) -> None:
    target = folder / "target"
    command = [cargo, "build", "--release", "--locked", "-q", "--manifest-path", str(_CRATE / "Cargo.toml")]
    built = subprocess.run([*command, "--target-dir", str(target)], stderr=subprocess.PIPE, text=True)
    if built.returncode:
        raise PeerAbsent(f"the program on differential-dataflow cannot be compiled: {built.stderr[-2000:]}")
    shutil.copy2(target / "release" / _NAME, folder / _NAME)
    shutil.rmtree(target)


if __name__ == "__main__":
    progress(f"differential-dataflow: {install()}")
