"""The Spark session keeps to its scratch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.replica.process import descendants, living, wait_until
from tests.waiting import BOUND, until
from tidemark_replica.process.scratch import Scratch

pytestmark = pytest.mark.spark

SAYS_WHERE = """
import sys
from pathlib import Path
from tidemark_replica.spark.session import start_spark
spark = start_spark("local[1]", "512m", Path(sys.argv[1]), files=Path(sys.argv[2]))
assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
print("temporary:", spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))
print("blocks:", spark.sparkContext.getConf().get("spark.local.dir"))
spark.stop()
"""


def test_files_of_a_killed_jvm_are_in_scratch(tmp_path: Path) -> None:
    """Spark makes folders for artifacts and blocks in the JVM's temporary folder; scratch is removed, that is not. In a
    pod a volume of their own is scratch for them.

    The folder is the JVM's from its start: a process of its own, for another test may have started this one's.
    """
    files = tmp_path / "files"
    command = [sys.executable, "-c", SAYS_WHERE, str(tmp_path / "scratch"), str(files)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert result.returncode == 0, result.stderr
    assert {f"temporary: {files / 'spark'}", f"blocks: {files / 'spark'}"} <= set(result.stdout.splitlines())


IS_KILLED = """
import sys
from pathlib import Path
from tidemark_replica.process.scratch import Scratch
from tidemark_replica.spark.session import start_spark
scratch = Scratch(Path(sys.argv[1]), "killed")
spark = start_spark("local[1]", "512m", scratch.folder, sockets=scratch.sockets())
assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
print("ready", flush=True)
sys.stdin.read()
"""


def test_crash_the_sockets_of_a_killed_spark_are_in_scratch(tmp_path: Path) -> None:
    """All that Spark and its Python workers bind: nothing of it is left in the system's temporary folder."""
    scratch = tmp_path / ("s" * 120)
    with tempfile.TemporaryDirectory(prefix="tm-") as temporary:
        environ = {**os.environ, "TMPDIR": temporary}
        command = [sys.executable, "-c", IS_KILLED, str(scratch)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            children = descendants(process.pid)
            process.kill()
        until(lambda: not living(children))

        assert list((scratch / "killed").rglob("*.sock"))
        assert not [path for path in Path(temporary).iterdir() if not path.is_symlink() and path.suffix == ".sock"]
    Scratch(scratch, "next").close()
    assert [path.name for path in scratch.iterdir()] == ["lock"]


DAEMON_IS_KILLED = """
import os, sys, time
from pathlib import Path
from tidemark_replica.spark.session import start_spark
spark = start_spark("local[2]", "512m", Path(sys.argv[1]), sockets=Path(sys.argv[2]))
def of_worker(batches):
    for _ in batches:
        time.sleep(1)  # both tasks are at work at once: each has a worker
        yield pa.record_batch([pa.array([os.getpid()])], names=["pid"])
import pyarrow as pa
def workers():
    return {row.pid for row in spark.range(0, 2, 1, 2).mapInArrow(of_worker, "pid long").collect()}
print(*workers(), flush=True)
sys.stdin.readline()
for failures in range(3):
    try:
        print(*workers(), flush=True)
        break
    except Exception as error:  # Spark finds a dead worker in its pool, and has no daemon to tell
        print(type(error).__name__, file=sys.stderr)
"""
WORKERS_SECONDS = 20.0
"""The JVM itself drops workers that are idle for a minute."""


def test_crash_python_workers_end_with_their_daemon(tmp_path: Path) -> None:
    """SIGKILL to the daemon alone: its workers, idle on the JVM's sockets, end at once, and new ones take
    their place. Each of the two may fail the job that Spark gives it to; steps run again."""
    with (
        tempfile.TemporaryDirectory(prefix="tm-") as sockets,  # of a short path
        subprocess.Popen(
            [sys.executable, "-c", DAEMON_IS_KILLED, str(tmp_path), sockets],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            workers = {int(pid) for pid in process.stdout.readline().split()}
            assert len(workers) == 2
            (daemon,) = {parent_of(worker) for worker in workers}
            os.kill(daemon, signal.SIGKILL)
            wait_until(lambda: not [pid for pid in workers if Path(f"/proc/{pid}").exists()], WORKERS_SECONDS)
            process.stdin.write("\n")
            process.stdin.flush()
            later = {int(pid) for pid in process.stdout.readline().split()}
            assert later
            assert not later & workers
        finally:
            process.kill()


IMPORTS = """
import sys
from pathlib import Path
import pyarrow as pa
from tidemark_replica.spark.session import start_spark

def imported(batches):
    # a worker has imported nothing itself yet: Spark hands it this function before any batch
    import gc, sys
    found = all(m in sys.modules for m in ("tidemark_replica.render.task.stage", "pyarrow.parquet", "numpy"))
    yield from (pa.record_batch({"frozen": [gc.get_freeze_count()], "imported": [found]}) for _ in batches)

spark = start_spark("local[2]", "512m", Path(sys.argv[1]))
rows = spark.range(0, 2, 1, 2).mapInArrow(imported, "frozen long, imported boolean").collect()
print(min(row.frozen for row in rows), all(row.imported for row in rows))
spark.stop()
"""


def test_python_workers_begin_with_the_code_of_tasks(tmp_path: Path) -> None:
    """Their daemon has imported it, and hidden it from the garbage collector."""
    command = [sys.executable, "-c", IMPORTS, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert result.returncode == 0, result.stderr
    frozen, imported = result.stdout.split()
    assert imported == "True"
    assert int(frozen) > 10_000


LOOKUPS = """
import sys
from pathlib import Path
from py4j.java_gateway import JVMView
from tidemark_replica.spark.session import start_spark
spark = start_spark("local[1]", "512m", Path(sys.argv[1]))
asked, ask = [], JVMView.__getattr__
JVMView.__getattr__ = lambda jvm, name: (asked.append(name), ask(jvm, name))[1]
frame = spark.range(3).where("id > 0").mapInArrow(lambda batches: batches, "id long")
frame._jdf.queryExecution().executedPlan()
print(*sorted(name for name in asked if name[0].isalpha() and "." not in name))
spark.stop()
"""


def test_classes_without_a_package_are_looked_up_once(tmp_path: Path) -> None:
    """No stage that is prepared makes the JVM search its jars for a short name."""
    command = [sys.executable, "-c", LOOKUPS, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
