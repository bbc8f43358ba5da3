"""A plugin for pytest: root and all packages are there, and the kernel has no overlayfs."""

from __future__ import annotations

import pytest

from tidemark_devcluster.node import needs


@pytest.hookimpl
def pytest_configure() -> None:
    needs._require_root = lambda what, why: None
    needs.missing_packages = lambda *_, **__: []
    needs.missing_features = lambda filesystems, cgroups: ["overlayfs"]
