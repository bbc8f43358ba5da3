"""Spark's JVM is started by a fork of a process that speaks gRPC: gRPC must leave the child alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SAYS_WHETHER = """
import importlib, os, sys
importlib.import_module(sys.argv[1])
assert "grpc" not in sys.modules, "too late: it reads this when it is imported"
print(os.environ["GRPC_ENABLE_FORK_SUPPORT"])
"""


@pytest.mark.parametrize("package", ["tidemark_replica", "tidemark_planner", "bench"])
def test_starting_spark_disables_grpcs_fork_handlers(package: str) -> None:
    """Before anything of the package imports gRPC; what the user has set stays."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    result = subprocess.run(
        [sys.executable, "-c", SAYS_WHETHER, package], env=environment, capture_output=True, text=True, check=False
    )

    assert (result.returncode, result.stdout.strip()) == (0, "false"), result.stderr
