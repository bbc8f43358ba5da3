"""The version of the installed release; pyproject.toml alone states it."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def release() -> str:
    """The version, such as `0.1.0.dev0`; `unknown` where the sources run without installation."""
    try:
        return version("tidemark")
    except PackageNotFoundError:
        return "unknown"
