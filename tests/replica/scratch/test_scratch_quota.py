"""The use of scratch, from the files in it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import BOUND, until
from tidemark_replica.peek.result_stash import STASH_BYTES
from tidemark_replica.process import scratch_quota
from tidemark_replica.process.scratch_quota import ScratchQuota, disk_usage

MIB = 1 << 20
SIZE = 16 * MIB


class Watched:
    """A folder whose room is looked at, and what was told of it last."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.unnamed, self.told = folder, 0, (False, False)
        self.room = ScratchQuota(folder, SIZE)
        self.looks, self.fails = 0, False
        self.room.watch(self.tell, self.look)

    def look(self) -> int:
        self.looks += 1
        if self.fails:
            raise OSError("the disk does not answer")
        return self.unnamed

    def tell(self, scarce: bool, full: bool) -> None:
        self.told = scarce, full

    def fill(self, file: str, size: int) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    for pause in ("MEASURE_SECONDS_MIN", "MEASURE_SECONDS_BELOW_HALF"):
        monkeypatch.setattr(scratch_quota, pause, 0.01)
    made = Watched(tmp_path)
    yield made
    made.room.close()


def test_all_files_count_whichever_process_wrote_them(watched: Watched) -> None:
    """Files, wherever they are, and those without names; what goes counts no more."""
    watched.fill("a/b/state.arrow", SIZE * 7 // 8 - MIB)
    watched.fill("spark/blocks", MIB * 3 // 2)
    until(lambda: watched.told == (True, False))
    watched.unnamed = MIB
    until(lambda: watched.told == (True, True))
    watched.unnamed = 0
    until(lambda: watched.told == (True, False))
    (watched.folder / "spark" / "blocks").unlink()
    until(lambda: watched.told == (False, False))


def test_files_that_vanish_while_they_are_counted_are_skipped(tmp_path: Path) -> None:
    """Steps end all the time: their folders vanish under whoever adds them up. The files that stay count each time."""
    (tmp_path / "stays").write_bytes(bytes(MIB))
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for step in range(20):
                (tmp_path / f"s{step}" / "deep").mkdir(parents=True)
                (tmp_path / f"s{step}" / "deep" / "file").write_bytes(bytes(1000))
            for step in range(20):
                shutil.rmtree(tmp_path / f"s{step}")

    steps = threading.Thread(target=come_and_go)
    steps.start()
    try:
        assert all(MIB <= disk_usage(tmp_path) < 2 * MIB for _ in range(300))
    finally:
        over.set()
        steps.join(BOUND)


def test_unreadable_folders_are_skipped(tmp_path: Path) -> None:
    """Its path is longer than the system takes; what lies beside it counts."""
    (tmp_path / "stays").write_bytes(bytes(MIB))
    within = os.open(tmp_path, os.O_DIRECTORY)
    for _ in range(20):
        os.mkdir("n" * 250, dir_fd=within)
        inner = os.open("n" * 250, os.O_DIRECTORY, dir_fd=within)
        os.close(within)
        within = inner
    os.close(within)
    assert MIB <= disk_usage(tmp_path) < 2 * MIB


def test_where_nothing_can_be_known_nothing_is_refused(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """After some looks that failed; it is logged once. A look that succeeds tells again."""
    watched.unnamed = SIZE
    until(lambda: watched.told == (True, True))
    looks, watched.fails = watched.looks, True
    until(lambda: watched.told == (False, False))
    until(lambda: watched.looks > looks + 20)
    assert [r.levelname for r in caplog.records if "the disk usage of scratch" in r.message] == ["WARNING"]
    watched.fails = False
    until(lambda: watched.told == (True, True))


def test_however_long_a_look_takes_the_next_is_soon() -> None:
    """The folder has many files, on a slow disk."""
    assert scratch_quota.pause_after(0.01, below_half=False) == 1.0
    assert scratch_quota.pause_after(0.05, below_half=False) == 1.5
    assert scratch_quota.pause_after(20.0, below_half=False) == 2.0
    assert scratch_quota.pause_after(20.0, below_half=True) == 5.0


def test_arrangements_and_answers_have_their_parts(tmp_path: Path) -> None:
    """The volume has an end."""
    room, endless = ScratchQuota(tmp_path, 1024 * MIB), ScratchQuota(tmp_path, None)
    assert (room.arrangement_bytes, room.stash_bytes) == (896 * MIB, 256 * MIB)
    assert (endless.arrangement_bytes, endless.stash_bytes) == (None, STASH_BYTES)
