"""Open batches: bounded, let go of by time once their files are gone, and for many threads at once."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pyarrow as pa
import pytest

from tests.arrangement.histories import A, contents
from tests.arrangement.spines.batches import LARGE, LAYOUT, arranged, is_mapped, remove
from tests.waiting import BOUND, until
from tidemark_replica.arrangement.batches import batch_cache
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.batches.key_lookup import Keys
from tidemark_replica.arrangement.errors import BatchUnreadable
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.trace import Trace


def deleted(folder: Path) -> list[str]:
    """The files in the folder that are gone, and which this process maps."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in maps if str(folder) in line and line.endswith("(deleted)")]


def test_an_idle_process_closes_deleted_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks the cache for anything, and what is there is not opened again."""
    monkeypatch.setattr(batch_cache, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(batch_cache, "_WATCH", batch_cache._DeletedFileWatch())
    batches = arranged(tmp_path, 3, LARGE).batches
    cache = BatchCache(tmp_path)
    for ref in batches:
        cache.segments(ref, LAYOUT)
    remove(tmp_path, batches[:2])
    until(lambda: not deleted(tmp_path))
    opened = cache.opened
    cache.segments(batches[2], LAYOUT)
    assert cache.opened == opened
    with pytest.raises(BatchUnreadable):
        cache.segments(batches[0], LAYOUT)


def test_an_open_batch_stays_readable(tmp_path: Path) -> None:
    """Whoever reads a batch keeps its mapping, whatever becomes of the file and of the cache."""
    manifest = arranged(tmp_path, 1, LARGE)
    cache = BatchCache(tmp_path)
    (segment,) = cache.segments(manifest.batches[0], LAYOUT)
    remove(tmp_path, manifest.batches)
    cache.close_deleted()
    assert sorted(segment.rows.column(1).to_pylist()) == list(range(LARGE))
    del segment
    until(lambda: not is_mapped(tmp_path))  # the thread that closes deleted batches may hold one for a moment


def test_copies_of_small_batches_go_with_their_files(tmp_path: Path) -> None:
    """The files of a dropped arrangement go; one that is still there is as it was."""
    gone, there = arranged(tmp_path / "gone", 4, 2), arranged(tmp_path / "there", 4, 2)
    for folder, manifest in (("gone", gone), ("there", there)):
        cache = BatchCache(tmp_path / folder)
        keys = Keys.of([pa.array([1, 3])], 2)
        list(Trace(manifest, cache).probe(keys))
        assert cache._small.files() == manifest.files
        if folder == "gone":
            remove(tmp_path / folder, manifest.batches[:1])
            cache.close_deleted()
            assert cache._small.files() == set()
        else:
            cache.close_deleted()
            assert cache._small.files() == manifest.files


def test_it_is_bounded(tmp_path: Path) -> None:
    """The least recently used is closed first."""
    batches = arranged(tmp_path, 20, 1).batches
    cache = BatchCache(tmp_path, limit=10)
    for ref in batches:
        cache.segments(ref, LAYOUT)
        cache.segments(batches[0], LAYOUT)
    assert set(cache._open) == {batches[0].file, *(ref.file for ref in batches[-9:])}
    assert cache.opened == 20


def test_the_sweeper_thread_does_not_keep_a_cache_alive(tmp_path: Path) -> None:
    """Nor what it has mapped."""
    manifest = arranged(tmp_path, 1, LARGE)
    cache = BatchCache(tmp_path)
    cache.segments(manifest.batches[0], LAYOUT)
    found = weakref.ref(cache)
    batch_cache._WATCH._check()
    del cache
    gc.collect()
    assert found() is None
    until(lambda: not is_mapped(tmp_path))  # the thread that closes deleted batches may hold one for a moment


def test_where_no_thread_can_be_started_it_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading goes on meanwhile."""
    batches, cache = arranged(tmp_path, 2, 1).batches, BatchCache(tmp_path)
    monkeypatch.setattr(batch_cache, "_WATCH", batch_cache._DeletedFileWatch())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refused)
        cache.segments(batches[0], LAYOUT)
    assert not cache._watched
    cache.segments(batches[1], LAYOUT)
    assert cache._watched


def _refused(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_agree_many_threads_read_the_same_while_files_go(tmp_path: Path) -> None:
    """A small cache is used by readers of one arrangement while another's batches come and go."""
    kept, other = arranged(tmp_path / "kept", 6, 50), arranged(tmp_path / "other", 6, 50)
    (tmp_path / "kept" / A).rename(tmp_path / "kept" / "kept")
    refs = tuple(ref._replace(file=ref.file.replace(f"{A}/", "kept/")) for ref in kept.batches)
    (tmp_path / "kept" / A).mkdir()
    kept = Manifest(A, LAYOUT, 0, 6, 0, refs)
    cache, expected = (
        BatchCache(tmp_path / "kept", limit=3),
        contents(Trace(kept, BatchCache(tmp_path / "kept")).rows_at(5)),
    )
    keys, failures, ended = Keys.of([pa.array([7, 250])], 2), list[BaseException](), threading.Event()

    def read() -> None:
        try:
            while not ended.is_set():
                assert contents(Trace(kept, cache).rows_at(5)) == expected
                assert sum(len(h.delta) for h in Trace(kept, cache).probe(keys)) == 2
        except BaseException as error:
            failures.append(error)

    def come_and_go() -> None:
        for at in range(60):
            ref = other.batches[at % 6]
            path = tmp_path / "kept" / ref.file
            path.write_bytes((tmp_path / "other" / ref.file).read_bytes())
            cache.segments(ref, LAYOUT)
            path.unlink()
            cache.close_deleted()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    come_and_go()
    ended.set()
    for thread in threads:
        thread.join(BOUND)
    assert not failures
    assert set(cache._open) <= {ref.file for ref in refs}
