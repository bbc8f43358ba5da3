"""Files that a killed process left on a volume, and their removal."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark_persist.files.spill import divide
from tidemark_replica.errors import ScratchInUse
from tidemark_replica.options import parse
from tidemark_replica.process.replica import Replica
from tidemark_replica.process.scratch import Scratch

HOLDS = """
import sys
from pathlib import Path
from tidemark_replica.process.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]), sys.argv[2])
(scratch.folder / "batch.arrow").write_bytes(b"x")
print("there", flush=True)
sys.stdin.read()
"""


def held(folder: Path, incarnation: str) -> subprocess.Popen[str]:
    """A process that has the folder, and something in it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder), incarnation],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_crash_the_next_process_removes_files_of_a_killed_one(tmp_path: Path) -> None:
    """However often; while it lives nobody else has the folder."""
    for incarnation in ("a", "b"):
        with held(tmp_path, incarnation) as process:
            assert (tmp_path / incarnation / "batch.arrow").exists()
            with pytest.raises(ScratchInUse):
                Scratch(tmp_path, "c")
            process.kill()
            process.communicate()

    scratch = Scratch(tmp_path, "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "lock"]
    assert list(scratch.folder.iterdir()) == []
    scratch.close()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_two_shapes_on_one_claim_leave_each_other_alone(tmp_path: Path) -> None:
    """While one surges beside the other; and when one of them is killed."""
    with held(tmp_path / "r1-3f9c0a12", "a") as old:
        new = Scratch(tmp_path / "r1-b17e44d0", "b")
        assert (tmp_path / "r1-3f9c0a12" / "a" / "batch.arrow").exists()
        old.kill()
        old.communicate()
        with held(tmp_path / "r1-3f9c0a12", "c") as again:
            assert new.folder.exists()
            again.kill()
            again.communicate()
    new.close()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The system's folder for temporary files, for this test alone."""
    with tempfile.TemporaryDirectory(prefix="tm-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def leave_socket(folder: Path) -> None:
    """A socket as Spark names them; it stays where it was bound."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / f".{uuid.uuid4()}.sock"))


def sockets_in(folder: Path) -> int:
    return len(list(folder.rglob("*.sock")))


@pytest.mark.parametrize("name", ["s", "s" * 120], ids=["short", "long"])
def test_crash_sockets_go_with_the_process_after(name: str, temporary: Path) -> None:
    """However long the folder's path is: of one that was killed nothing but a link is left elsewhere, which its
    successor takes over."""
    folder = temporary / name
    for incarnation in ("a", "b"):
        scratch = Scratch(folder, incarnation)
        leave_socket(scratch.sockets())
        assert sockets_in(scratch.folder) == sockets_in(folder) == 1
        links = [path for path in temporary.iterdir() if path.is_symlink()]
        assert len(links) == (name != "s")
        if incarnation == "a":
            os.close(scratch._lock)  # as the kernel does when it is killed

    scratch.close()
    assert [path.name for path in temporary.iterdir()] == [name]
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_a_link_of_another_is_left_alone(temporary: Path) -> None:
    """A file in its place is no link: sockets are then where they would be without a scratch folder."""
    scratch = Scratch(temporary / ("s" * 120), "a")
    link = scratch.sockets()
    link.unlink()
    link.mkdir()

    assert scratch.sockets() == temporary
    scratch.close()
    assert link.is_dir()


@pytest.mark.parametrize("own", [True, False], ids=["a volume of its own", "scratch"])
def test_spilled_files_lie_with_sparks_own(tmp_path: Path, own: bool) -> None:
    """A correction or a compaction may be as large as a table: there is room for that, and it goes with the process."""
    local = tmp_path / "local" if own else tmp_path / "scratch"
    arguments = [f"--listen=unix://{tmp_path}/replica", f"--scratch={tmp_path}/scratch", "--driver-steps=0"]
    arguments += [f"--spark-files={local}"] if own else []
    rows = pa.table({"k": [1, 2, 3]})
    replica = Replica(parse(arguments))
    try:
        shares = divide([rows], rows.schema, 3)
        next(shares)
        assert list(local.rglob("tidemark-shares-*"))
        shares.close()
    finally:
        replica.close()

    assert [path.name for path in local.iterdir()] == ["lock"]
    assert sum(table.num_rows for share in divide([rows], rows.schema, 3) for table in share) == 3
