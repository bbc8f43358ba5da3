"""The Spark session keeps to its scratch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.replica.process import alive, descendants
from tests.waiting import until
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


def test_what_a_killed_jvm_leaves_is_in_scratch(tmp_path: Path) -> None:
    """Spark makes folders for artifacts and blocks in the JVM's temporary folder; scratch is removed, that is not. In a
    pod a volume of their own is scratch for them.

    The folder is the JVM's from its start: a process of its own, for another test may have started this one's.
    """
    files = tmp_path / "files"
    command = [sys.executable, "-c", SAYS_WHERE, str(tmp_path / "scratch"), str(files)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert said.returncode == 0, said.stderr
    assert {f"temporary: {files / 'spark'}", f"blocks: {files / 'spark'}"} <= set(said.stdout.splitlines())


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
        until(lambda: not alive(children))

        assert list((scratch / "killed").rglob("*.sock"))
        assert not [path for path in Path(temporary).iterdir() if not path.is_symlink() and path.suffix == ".sock"]
    Scratch(scratch, "next").close()
    assert [path.name for path in scratch.iterdir()] == ["lock"]
