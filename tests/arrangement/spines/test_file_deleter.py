"""A store that waits for no disk: files go soon, never before their last user; a death in between leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arrangement.histories import A, contents
from tests.arrangement.spines.batches import LAYOUT, arranged
from tests.stored_files import stored_files
from tests.stuck_folders import StuckFolders
from tests.waiting import BOUND, until
from tidemark_replica.arrangement import store as store_module
from tidemark_replica.arrangement.batches import file_deleter
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.store import ArrangementStore


class Disk:
    """It deletes a file only while it `works`; `asked` says of how many it was to."""

    def __init__(self) -> None:
        self.works = threading.Event()
        self.asked = 0
        self._removed = store_module._removed

    def removed(self, path: Path) -> bool:
        self.asked += 1
        assert self.works.wait(BOUND)
        return self._removed(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(store_module, "_removed", made.removed)
    yield made
    made.works.set()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ArrangementStore]:
    made = ArrangementStore(tmp_path, waits_for_disk=False)
    made.install(arranged(made.directory, 4, 3))
    yield made
    made.close()


def on_disk(store: ArrangementStore) -> set[str]:
    return stored_files(store.directory)


def with_batches(manifest: Manifest, batches: slice) -> Manifest:
    return Manifest.empty(A, LAYOUT, 0).append(manifest.batches[batches], 0, manifest.upper)


def test_a_commit_does_not_wait_for_the_disk(store: ArrangementStore, disk: Disk) -> None:
    """Nor do the next one, the end of a pin, and a drop; all that is nobody's goes in the end."""
    old = store.current(A)
    smaller = with_batches(old, slice(1, 4))
    store.commit(old, smaller)
    until(lambda: disk.asked)
    with store.pin(A):
        store.commit(smaller, with_batches(old, slice(2, 4)))
    store.discard(old.batches[:1])
    assert store.bytes == sum(b.bytes for b in old.batches[2:])
    assert on_disk(store) == old.files
    disk.works.set()
    until(lambda: on_disk(store) == store.current(A).files)
    store.remove(A)
    until(lambda: not (store.directory / A).exists())


def test_a_folder_at_which_the_disk_hangs_delays_no_other(
    store: ArrangementStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a dropped arrangement hangs: others begin, are read, committed, swept and dropped meanwhile."""
    stuck, other = StuckFolders(monkeypatch), ArrangementId("b")
    store.remove(A)
    until(lambda: stuck.asked)
    empty = Manifest.empty(other, LAYOUT, 0)
    store.install(empty)
    with store.pin(other):
        store.commit(empty, empty.append([], 0, 1))
    assert store.sweep(()) == 0
    store.remove(other)
    assert stuck.removed == 0
    stuck.works.set()
    until(lambda: not (store.directory / A).exists())


def test_a_folder_that_another_has_removed_stops_nothing(
    store: ArrangementStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal may be done twice: what waits behind it goes all the same."""
    stuck = StuckFolders(monkeypatch)
    store.remove(A)
    until(lambda: stuck.asked)
    os.rename(store.directory / A, store.directory / "elsewhere")
    (store.directory / "b").mkdir()
    store.remove_later(lambda: store.clear(of="b"))
    stuck.works.set()
    until(lambda: not (store.directory / "b").exists())


def test_a_pinned_file_is_read_to_the_end(store: ArrangementStore, disk: Disk) -> None:
    """However soon the disk deletes."""
    disk.works.set()
    old, other = store.current(A), ArrangementId("b")
    store.install(Manifest.empty(other, LAYOUT, 0))
    with store.pin(A) as pinned:
        store.commit(old, with_batches(old, slice(3, 4)))
        (store.directory / other).mkdir()
        (store.directory / other / "left.arrow").touch()
        left = old.batches[0]._replace(file="b/left.arrow")
        store.discard([left])  # behind the commit: what it had to delete has been looked at when this is gone
        until(lambda: not (store.directory / left.file).exists())
        assert contents(Trace(pinned[A], BatchCache(store.directory)).rows_at(3))
        assert on_disk(store) == old.files
    until(lambda: on_disk(store) == store.current(A).files)


def test_waiting_deletions_are_bounded(store: ArrangementStore, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs for long: the rest is swept."""
    monkeypatch.setattr(file_deleter, "MAX_WAITING", 1)
    old = store.current(A)
    for at in range(1, 4):
        store.commit(store.current(A), with_batches(old, slice(at, 4)))
        until(lambda: disk.asked)
    disk.works.set()
    until(lambda: old.batches[1].file not in on_disk(store))
    assert on_disk(store) == {b.file for b in old.batches[2:]}
    assert store.sweep(()) == 1
    assert on_disk(store) == store.current(A).files


def test_where_no_thread_can_be_started_it_is_tried_again(
    store: ArrangementStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what waits, when there is more; the commit stands."""
    old = store.current(A)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refused)
        store.commit(old, with_batches(old, slice(1, 4)))
    assert on_disk(store) == old.files
    store.commit(store.current(A), with_batches(old, slice(2, 4)))
    until(lambda: on_disk(store) == store.current(A).files)


def test_when_nothing_comes_any_more_the_thread_ends_and_another_takes_its_place(
    store: ArrangementStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit by commit, each with a thread of its own."""
    monkeypatch.setattr(file_deleter, "LINGER_SECONDS", 0.0)
    others, old = threading.enumerate(), store.current(A)
    for at in range(1, 4):
        store.commit(store.current(A), with_batches(old, slice(at, 4)))
        until(lambda: on_disk(store) == store.current(A).files)
        until(lambda: not [t for t in threading.enumerate() if t.name == file_deleter.THREAD and t not in others])


def _refused(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_an_end_waits_for_no_file(tmp_path: Path, disk: Disk) -> None:
    """All of the incarnation goes at once, with what waits."""
    store = ArrangementStore(tmp_path, waits_for_disk=False)
    store.install(arranged(store.directory, 4, 3))
    store.commit(store.current(A), with_batches(store.current(A), slice(0, 0)))
    until(lambda: disk.asked)
    store.close()
    assert not store.directory.exists()


DIES = """
import os, pathlib, sys, threading
from tests.arrangement.spines.batches import LAYOUT, arranged
from tests.arrangement.histories import A
from tidemark_replica.arrangement import store as store_module
from tidemark_replica.arrangement.spines.manifest import Manifest

asked = threading.Event()

def hangs(path):
    asked.set()
    threading.Event().wait()

store = store_module.ArrangementStore(pathlib.Path(sys.argv[1]), waits_for_disk=False)
store.install(arranged(store.directory, 4, 3))
if sys.argv[2] == "commit":
    store_module._removed = hangs
    old = store.current(A)
    store.commit(old, Manifest.empty(A, LAYOUT, 0).append(old.batches[:1], 0, old.upper))
else:
    os.rmdir = hangs
    store.remove(A)
asked.wait()
print(store.directory, flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize(("of", "left"), [("commit", 4), ("drop", 0)])
def test_crash_the_next_incarnation_sweeps_pending_deletions(tmp_path: Path, of: str, left: int) -> None:
    """The process is killed between a commit and the deletion of what it replaced; or when of what was dropped all is
    gone but the folder."""
    child = subprocess.Popen([sys.executable, "-c", DIES, str(tmp_path), of], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        directory = Path(child.stdout.readline().strip())
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(BOUND)
    assert len(list(directory.glob(f"{A}/*.arrow"))) == left
    assert (directory / A).exists()
    store = ArrangementStore(tmp_path, waits_for_disk=False)
    assert not directory.exists()
    assert list(tmp_path.glob("*/*/")) == []
    store.close()
