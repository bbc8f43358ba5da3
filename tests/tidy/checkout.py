"""The files of the project: tracked by git, or new and not ignored."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / ".git").exists():
    pytest.skip("only git knows which files are the project's", allow_module_level=True)


@cache
def files(*patterns: str) -> tuple[Path, ...]:
    """The files that match, by path; the checkout may belong to another user than the one who tests it."""
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run([*git, "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in sorted(set(output.split("\0"))) if name)
    return tuple(path for path in paths if path.is_file() and not path.is_symlink())


def generated(path: Path) -> bool:
    """Not written by hand."""
    return "_pb2" in path.name


def name(path: Path) -> str:
    """The path from the root."""
    return str(path.relative_to(ROOT))
