"""Under which circumstances figures were measured, and the form in which every benchmark prints them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

PACKAGES = ("pyspark", "pyarrow", "numpy", "deltalake", "duckdb")


def context() -> dict[str, Any]:
    """The machine and the versions; of the machine only what matters to figures."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "java": java.splitlines()[0],
        "versions": {package: version(package) for package in PACKAGES},
    }


def load() -> float:
    """The number of processes that wanted to run, on average over the last minute."""
    return round(os.getloadavg()[0], 1)


def progress(text: str) -> None:
    """Print one line of progress on standard error; results go to standard output."""
    print(text, file=sys.stderr, flush=True)


def bench_parser(description: str | None, quick: str | None = None) -> argparse.ArgumentParser:
    """The options that every benchmark has; `quick`: what `--quick` means."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", action="store_true", help="print one JSON object only")
    if quick is not None:
        made.add_argument("--quick", action="store_true", help=f"{quick}: does it run at all")
    return made


def report(bench: str, figures: Mapping[str, Any], circumstances: Mapping[str, Any], as_json: bool) -> None:
    """Figures for people, unless `as_json`; then the last line."""
    if not as_json:
        for name, value in figures.items():
            print(f"{name:44} {value}")
    print(last_line(bench, figures, circumstances))


def last_line(bench: str, figures: Mapping[str, Any], circumstances: Mapping[str, Any]) -> str:
    """One JSON object."""
    return json.dumps({"bench": bench, "figures": dict(figures), "context": dict(circumstances)})
