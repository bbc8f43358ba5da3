"""Data that is made once and kept outside the checkout.

    ~/.cache/tidemark/bench/<name>/          $TIDEMARK_CACHE, else $XDG_CACHE_HOME/tidemark

A folder appears under its name when it is complete, and not before: two runs may make it at once, or one may die.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where benchmarks keep their data."""
    if named := environ.get("TIDEMARK_CACHE"):
        return Path(named).expanduser() / "bench"
    base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")
    return Path(base).expanduser() / "tidemark" / "bench"


def cached(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder; `make` fills it when it is not there."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        make(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another run was faster, with the same data
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder
