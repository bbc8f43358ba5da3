"""The modules that the daemon of Python workers imports before it forks them do no harm to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import BOUND

DAEMON = """
import json, os, sys
from pathlib import Path

used = []
libraries = (sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path), "/proc/", "/sys/", "/usr/", "/dev/")

def audit(event, arguments):
    path = arguments[0] if event == "open" else None
    if event.startswith(("socket.connect", "socket.bind", "socket.getaddrinfo")):
        used.append(event)
    elif isinstance(path, str) and not path.startswith(libraries):
        used.append(path)

sys.addaudithook(audit)
from tidemark_replica.spark import python_daemon
python_daemon.IMPORTED = (*python_daemon.IMPORTED, "prints_at_import")
python_daemon.import_for_workers()
others = (task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid()))
threads = [(task / "comm").read_text().strip() for task in others]
files = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if int(number) > 2
         and os.path.exists(f"/proc/self/fd/{number}")]
print(json.dumps({"used": used, "threads": threads, "files": files, "modules": list(sys.modules)}))
"""
PRINTS = """
import os
print("a warning")
os.write(1, b"another")
"""
KEPT_OUT = {"grpc", "kubernetes", "kopf", "psycopg", "confluent_kafka", "boto3", "duckdb"}
"""Libraries that have pools of threads, or connections, of their own."""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_daemon_imports_no_threads_connections_or_output(tmp_path: Path) -> None:
    """A fork copies none of the threads; all workers would share a connection; and the daemon's output is read."""
    (tmp_path / "prints_at_import.py").write_text(PRINTS)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}  # the latter as Spark has it
    command = [sys.executable, "-c", DAEMON]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=BOUND, check=False, env=environment, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert "a warning" in result.stderr
    assert "another" in result.stderr
    assert set(found["threads"]) <= {"jemalloc_bg_thd"}, "jemalloc ends them before a fork"
    assert found["files"] == []
    assert found["used"] == []
    assert KEPT_OUT.isdisjoint(name.partition(".")[0] for name in found["modules"])
