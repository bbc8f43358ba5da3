"""The whole system with lineitem, for benches that ask it: an API server, an operator, replicas as local processes.

TPC-H ingests every second. Lineitem is an index by order (`lines`), a materialized view (`table`), and the input of
two aggregations that step with it. Answers are compared with the view's table at the same time.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.harness.gateway_client import GatewayClient, gateway_client
from tests.e2e.system import System, running
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.programs.build import ensure_binaries
from tidemark_devcluster.programs.progress import ProgressOutput

NAMESPACE, LINES_OF_SF1 = "bench", 6_000_000
COLUMNS = "l_orderkey, l_linenumber, l_partkey, l_quantity, l_extendedprice, l_shipdate"
INDEX = f"SELECT {COLUMNS} FROM tpch.lineitem"
LOOKUP = f"SELECT {COLUMNS} FROM lines WHERE l_orderkey = {{key}}"
STEPPING = {
    "by-part": "SELECT l_partkey, sum(l_quantity) AS q, count(*) AS n FROM tpch.lineitem GROUP BY l_partkey",
    "by-day": "SELECT l_shipdate, sum(l_extendedprice) AS price FROM tpch.lineitem GROUP BY l_shipdate",
}


@contextmanager
def started_system() -> Iterator[System]:
    """An operator beside a control plane, both ended after the block."""
    binaries = ensure_binaries(os.environ, ProgressOutput(sys.stderr))
    with (
        tempfile.TemporaryDirectory(prefix="tm-", ignore_cleanup_errors=True) as folder,
        ControlPlane.started(Path(folder) / "plane", binaries) as plane,
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        (home := Path(folder) / "system").mkdir()
        with running(plane, NAMESPACE, home) as system:
            yield system


def install_lineitem(system: System, lines: int) -> None:
    """Apply the source, of about so many lines, and the Dataflows; wait until the Dataflows are hydrated."""
    system.tpch(scale_factor=max(lines / LINES_OF_SF1, 0.001))
    system.dataflow("lines", INDEX, index={"key": ["l_orderkey"]})
    system.dataflow("table", INDEX)
    for name, sql in STEPPING.items():
        system.dataflow(name, sql, index={})
    system.wait_hydrated("lines", "table", *STEPPING)


def client_of(system: System) -> AbstractContextManager[GatewayClient]:
    """A client of the system's gateway, with a connection of its own."""
    return gateway_client(system.home / "gateway.json", NAMESPACE)
