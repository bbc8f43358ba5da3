"""A store that waits for no disk: files go soon, never before their last user; a death in between leaves nothing."""

from __future__ import annotations

import os
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


def test_an_end_waits_for_no_file(tmp_path: Path, disk: Disk) -> None:
    """All of the incarnation goes at once, with what waits."""
    store = ArrangementStore(tmp_path, waits_for_disk=False)
    store.install(arranged(store.directory, 4, 3))
    store.commit(store.current(A), with_batches(store.current(A), slice(0, 0)))
    until(lambda: disk.asked)
    store.close()
    assert not store.directory.exists()
