"""Driver and executors on two nodes whose shared folder is a bucket (`tests/shared_volume.py`), and what fails there.

Left out where there is no JuiceFS, no /dev/fuse or no right to mount.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from tests.replica.process import descendants
from tests.shared_volume import Node, Volume, missing, shared_volume
from tests.waiting import BOUND, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3000)]

SILENCE_SECONDS = 4 * BOUND
STORE_AWAY_SECONDS = 20.0
JAVA = """#!/bin/sh
# An executor's java begins on the other node; its process stays the one that Spark started.
case " $* " in
*" --executor-id "*) exec nsenter --mount=/proc/{pid}/ns/mnt -- /bin/sh -c 'cd "$0" && exec "$@"' "$PWD" {java} "$@" ;;
*) exec {java} "$@" ;;
esac
"""


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    if lacks := missing():
        pytest.skip(lacks)
    with shared_volume(tmp_path) as made:
        yield made


class Driver:
    """`on_volume` on node a, with its executors on node b."""

    def __init__(self, volume: Volume, how: str) -> None:
        root = Path(__file__).parents[2]
        environ = {
            **os.environ,
            "JAVA_HOME": str(java_home(volume.home / "java", volume.b)),
            "PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        folders = str(volume.home / "local"), str(volume.folder)
        words = [sys.executable, "-m", "tests.oracle.variants.on_volume", *folders, how]
        self._errors = (volume.home / "driver.log").open("ab")
        self._process = subprocess.Popen(
            volume.a.inside(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environ,
            cwd=volume.home,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def hears(self, word: str) -> str:
        """The next line that begins so."""
        while True:
            try:
                line = self._lines.get(timeout=SILENCE_SECONDS)
            except queue.Empty:
                raise AssertionError(f"no {word!r} after {self.said}") from None
            assert line, f"it ended without {word!r}: {self.said}"
            if line.startswith(word):
                return line

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def took(self, what: str, place: str) -> float:
        """Milliseconds, at the median."""
        words = [line.split() for line in self.said]
        return median(float(line[-1]) for line in words if line[0] == what and line[-2] == place)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(BOUND)

    def end(self) -> None:
        self.go_on()
        self._process.wait(BOUND)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.strip())
            self._lines.put(self.said[-1])
        self._lines.put("")


@contextmanager
def driver(volume: Volume, how: str) -> Iterator[Driver]:
    made = Driver(volume, how)
    try:
        yield made
    finally:
        made.kill()
        made._errors.close()


def java_home(folder: Path, node: Node) -> Path:
    """One whose executors begin on the node."""
    found = shutil.which("java")
    assert found is not None
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    program = folder / "bin" / "java"
    program.write_text(JAVA.format(pid=node.holder.pid, java=Path(found).resolve()))
    program.chmod(0o755)
    return folder


def test_state_in_a_bucket_agrees_and_survives_failures(volume: Volume) -> None:
    """Hydration and steps with retractions give what they give on a disk, and what Spark says as a batch; also when
    the executors' node loses the volume, when the bucket does not answer, and when the driver is killed.
    """
    with driver(volume, "waits") as first:
        first.hears("hydrated volume")
        first.hears("waits")
        volume.b.kill()
        first.go_on()
        first.hears("failed")
        volume.b.mount()
        first.hears("step 4 volume")
        first.hears("waits")
        with volume.store_hangs():
            first.go_on()
            time.sleep(STORE_AWAY_SECONDS)
        first.hears("step 7 volume")
        first.hears("agrees")
        for place in ("disk", "volume"):
            print(f"{place}: hydration {first.took('hydrated', place):.0f} ms, step {first.took('step', place):.0f} ms")
        assert volume.objects()
    with driver(volume, "straight on") as second:
        assert second.hears("incarnations") == "incarnations 1", "what the killed driver left is still there"
        second.hears("hydrated volume")
        second.hears("step 3 volume")
        second.kill()
    with driver(volume, "straight on") as third:
        assert third.hears("incarnations") == "incarnations 1", "what the killed driver left is still there"
        third.hears("agrees")
        third.end()
    volume.a.run("sh", "-c", f"rm -rf {volume.folder}/*")
    until(lambda: not volume.objects())


def test_locks_and_files_are_those_of_one_file_system(volume: Volume) -> None:
    """The demands of scratch on a folder: one node's lock is there on the other, and goes with its
    process; a file is there under its name at once, or not at all; what one node replaces or deletes, the other sees
    so."""
    a, b, lock, file = volume.a, volume.b, f"{volume.folder}/lock", f"{volume.folder}/file"
    holder = subprocess.Popen(a.inside("flock", "--exclusive", lock, "sleep", "infinity"))
    refused = "flock", "--nonblock", "--conflict-exit-code", "7", lock, "true"
    try:
        until(lambda: b.run(*refused).returncode == 7)
    finally:
        for pid in (holder.pid, *descendants(holder.pid)):
            os.kill(pid, 9)
        holder.wait()
    until(lambda: b.run(*refused).returncode == 0)
    for turn in range(20):
        assert not a.run("sh", "-c", f"echo {turn} >{file}.tmp && mv {file}.tmp {file}").returncode
        until(lambda turn=turn: b.run("cat", file).stdout == f"{turn}\n")  # type: ignore[misc]
        assert b.run("sh", "-c", f"ls {volume.folder}").stdout.split() == ["file", "lock"]
    assert not b.run("rm", file).returncode
    until(lambda: a.run("cat", file).returncode)
