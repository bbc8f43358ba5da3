"""Which release this is: what was installed says so, so it stands in pyproject.toml alone."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def release() -> str:
    """Such as `0.1.0.dev0`; `unknown` where the sources run without having been installed."""
    try:
        return version("tidemark")
    except PackageNotFoundError:
        return "unknown"
