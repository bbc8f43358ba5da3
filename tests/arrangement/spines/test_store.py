"""The store keeps a file exactly as long as a manifest or a pin names it."""

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from tests.arrangement.histories import A, contents, updates
from tests.stored_files import live_files, stored_files
from tidemark_replica.arrangement.batches.batch import BatchTimes
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.errors import (
    BatchUnreadable,
    DiskLimitExceeded,
    StaleManifest,
    UnknownArrangement,
)
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.step import FULL, MUCH_BYTES, SCARCE, BatchWriter, StepContext, StepId
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.kernels.arrange import arrange, sorted_rows

LAYOUT = Layout.of_rows([pa.int64()], [0])


@pytest.fixture
def store(tmp_path: Path):
    opened = ArrangementStore(tmp_path / "scratch")
    opened.install(Manifest.empty(A, LAYOUT, 0))
    yield opened
    opened.close()


def attempt(store: ArrangementStore, value: int, *, commit: bool = True) -> Manifest:
    """One step that writes one row; the manifest that it leads to."""
    old = store.current(A)
    writer = BatchWriter(store.directory, StepId(f"s{value}"), bytes_left=store.bytes_left)
    context = StepContext(old.upper, old.upper + 1, False, {A: old}, BatchCache(store.directory), writer)
    list(arrange(context, A, [updates([pa.int64()], [((value,), old.upper, 1)])]))
    new = old.append(writer.written[A], old.upper, old.upper + 1)
    if commit:
        store.commit(old, new)
    return new


def on_disk(store: ArrangementStore) -> set[str]:
    return stored_files(store.directory)


def test_a_file_goes_with_its_last_user(store: ArrangementStore) -> None:
    """A pin keeps a replaced manifest's files readable; they go when it ends, the newer ones stay."""
    attempt(store, 1)
    with store.pin(A) as pinned:
        old = store.current(A)
        store.commit(old, Manifest.empty(A, LAYOUT, 0).append([], 0, 1))
        attempt(store, 2)
        assert contents(Trace(pinned[A], BatchCache(store.directory)).rows_at(0)) == {((1,), None, 0): 1}
        assert on_disk(store) == live_files([pinned[A], store.current(A)])
    assert on_disk(store) == store.current(A).files
    assert store.bytes == store.current(A).bytes


def test_two_pins_of_one_manifest_are_two_users(store: ArrangementStore) -> None:
    """The first to end does not take the files from the second."""
    attempt(store, 1)
    with store.pin(A):
        with store.pin(A):
            store.remove(A)
        assert len(on_disk(store)) == 1
    assert on_disk(store) == set()
    with pytest.raises(UnknownArrangement), store.pin(A):
        pass


def test_folders_of_forgotten_arrangements_go(store: ArrangementStore) -> None:
    """The folder of an arrangement that is read goes with the read; one that is kept, or has other files, stays."""
    attempt(store, 1)
    (store.directory / f"{A}-stray").mkdir()
    (store.directory / f"{A}-stray" / "file").touch()
    store.clear(of=A)
    assert (store.directory / A).exists()
    with store.pin(A):
        store.remove(A)
        store.clear(of=A)
        assert (store.directory / A).exists()
    assert {p.name for p in store.directory.iterdir() if p.is_dir()} == {f"{A}-stray"}


def test_a_lost_race_changes_nothing(store: ArrangementStore) -> None:
    """The first of two attempts at one step counts; the other's file is swept away."""
    old = store.current(A)
    late = attempt(store, 1, commit=False)
    attempt(store, 1)
    with pytest.raises(StaleManifest, match="newer manifest"):
        store.commit(old, late)
    assert len(on_disk(store)) == 2
    assert store.sweep(running=[]) == 1
    assert on_disk(store) == store.current(A).files


def test_a_running_steps_files_are_not_swept(store: ArrangementStore) -> None:
    """An uncommitted file may still be committed while its step lasts."""
    new = attempt(store, 7, commit=False)
    assert store.sweep(running=[StepId("s7")]) == 0
    store.commit(store.current(A), new)
    assert store.sweep(running=[]) == 0
    assert len(on_disk(store)) == 1


def test_crash_half_written_file_is_never_seen(store: ArrangementStore) -> None:
    """A task killed while writing leaves a temporary name only, which is swept like any other leftover."""
    (store.directory / A).mkdir()
    (store.directory / A / "s1-abc-0.tmp").write_bytes(b"half")
    attempt(store, 1)
    assert store.sweep(running=[]) == 1
    assert on_disk(store) == store.current(A).files


def test_a_step_past_the_disk_limit_fails_by_the_arrangements_name(tmp_path: Path) -> None:
    """Its file is taken away again, and the store stays as it was."""
    store = ArrangementStore(tmp_path, limit_bytes=3000)
    store.install(Manifest.empty(A, LAYOUT, 0))
    attempt(store, 1)
    attempt(store, 2)
    before = store.current(A)
    with pytest.raises(DiskLimitExceeded, match="arrangement a "):
        attempt(store, 3)
    assert store.current(A) == before
    assert on_disk(store) == before.files
    store.close()


def test_scratch_that_is_taken_away_counts_no_more(tmp_path: Path) -> None:
    """A step that merges its own runs needs room for what exists at a time, not for all it ever wrote."""
    writer = BatchWriter(tmp_path, StepId("s1"), bytes_left=2000)
    rows = sorted_rows(updates([pa.int64()], [((1,), 0, 1)]), LAYOUT)
    for _ in range(10):
        ref = writer.write_scratch(A, LAYOUT, BatchTimes(0, 1, 0), [rows])
        writer.discard(ref)
    with pytest.raises(DiskLimitExceeded):
        [writer.write_scratch(A, LAYOUT, BatchTimes(0, 1, 0), [rows]) for _ in range(10)]


def test_stored_bytes_are_counted_as_files_come_and_go(store: ArrangementStore) -> None:
    """Each once, however many use it, until the last does not."""

    def kept() -> int:
        return sum((store.directory / file).stat().st_size for file in on_disk(store))

    for value in range(3):
        attempt(store, value)
        assert store.bytes == kept() > 0
    with store.pin(A), store.pin(A):
        old = store.current(A)
        store.commit(old, Manifest.empty(A, LAYOUT, 0).append(old.batches[:1], 0, 3))
        assert store.bytes == kept() == sum(b.bytes for b in old.batches)
    assert store.bytes == kept() == old.batches[0].bytes
    store.remove(A)
    assert store.bytes == kept() == 0


def test_a_commit_that_shrinks_the_store_is_allowed_at_the_limit(tmp_path: Path) -> None:
    """A merge: else a full store stayed full."""
    store = ArrangementStore(tmp_path, limit_bytes=3000)
    store.install(Manifest.empty(A, LAYOUT, 0))
    attempt(store, 1)
    old = attempt(store, 2)
    size = sum(b.bytes for b in old.batches)
    merged = old.batches[0]._replace(file="a/merged.arrow", upper=2, bytes=size)
    assert size <= 3000 < 2 * size
    larger = merged._replace(bytes=size + 1)
    with pytest.raises(DiskLimitExceeded):
        store.commit(old, Manifest.empty(A, LAYOUT, 0).append([larger], 0, 2))
    store.commit(old, Manifest.empty(A, LAYOUT, 0).append([merged], 0, 2))
    assert store.bytes == size
    store.close()


@pytest.mark.parametrize("known", [True, False])
def test_rows_that_do_not_fit_are_not_written(tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment: their neighbours need the room."""
    written: list[int] = []

    class Counting(pa.RecordBatchFileWriter):
        def write_batch(self, batch: pa.RecordBatch) -> None:
            written.append(batch.num_rows)
            super().write_batch(batch)

    rows = sorted_rows(updates([pa.int64()], [((n,), 0, 1) for n in range(100_000)]), LAYOUT)
    writer = BatchWriter(tmp_path, StepId("s1"), bytes_left=rows.nbytes * 3 // 2)
    monkeypatch.setattr(pa, "RecordBatchFileWriter", Counting)
    if known:
        writer.write_run(A, LAYOUT, BatchTimes(0, 1, 0), rows)
    with pytest.raises(DiskLimitExceeded, match="arrangement a needs"):
        writer.write_scratch(A, LAYOUT, BatchTimes(0, 1, 0), [rows] if known else [rows, rows])
    assert len(written) == 1


def test_at_the_limit_the_largest_jobs_end_first(tmp_path: Path) -> None:
    """By the marks in the folder alone, as they come and go: first what takes much, then all but what makes room."""
    limit = 1 << 40
    endless = BatchWriter(tmp_path, StepId("s1"))
    small, large = (BatchWriter(tmp_path, StepId(step), bytes_left=limit) for step in ("s2", "s3"))
    large.spend(MUCH_BYTES + 1, "an exchange")
    hydration = BatchWriter(tmp_path, StepId("s4"), bytes_left=limit, large=True)
    merge = BatchWriter(tmp_path, StepId("m1"), bytes_left=limit, frees_space=True)
    writers = (endless, merge, small, hydration, large)

    def going_on() -> list[BatchWriter]:
        found = []
        for writer in writers:
            with suppress(DiskLimitExceeded):
                assert list(writer.while_step_alive("rows"))
                writer.spend(1, "an exchange")
                found.append(writer)
        return found

    assert going_on() == list(writers)
    (tmp_path / SCARCE).touch()
    assert going_on() == [endless, merge, small]
    (tmp_path / FULL).touch()
    assert going_on() == [endless, merge]
    (tmp_path / SCARCE).unlink()
    (tmp_path / FULL).unlink()
    assert going_on() == list(writers)


def test_two_steps_that_fit_one_by_one_are_limited_together(tmp_path: Path) -> None:
    """Bytes that other steps wrote meanwhile count when a step commits."""
    store = ArrangementStore(tmp_path, limit_bytes=2000)
    b = ArrangementId("b")
    for arrangement in (A, b):
        store.install(Manifest.empty(arrangement, LAYOUT, 0))
    late = attempt(store, 1, commit=False)
    store.commit(store.current(b), Manifest.empty(b, LAYOUT, 0).append(late.batches, 0, 1))
    other = [ref._replace(file="a/other.arrow") for ref in late.batches]
    with pytest.raises(DiskLimitExceeded, match="arrangement a grew"):
        store.commit(store.current(A), Manifest.empty(A, LAYOUT, 0).append(other, 0, 1))
    assert store.current(A).batches == ()
    store.close()


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "gone", "footer"])
def test_a_damaged_batch_is_a_typed_error(store: ArrangementStore, damage: str) -> None:
    """Truncated, replaced or missing files are refused with the path, not read and not fatal."""
    manifest = attempt(store, 1)
    path = store.directory / manifest.batches[0].file
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        broken = {"cut": data[:-20], "empty": b"", "garbage": b"x" * len(data), "footer": data[:-10] + b"y" * 10}
        path.write_bytes(broken[damage])
    with pytest.raises(BatchUnreadable, match=str(path)):
        list(Trace(manifest, BatchCache(store.directory)).rows_at(0))


def test_random_access_reads_the_same(store: ArrangementStore) -> None:
    """Mapping without read-ahead changes nothing but the pages touched."""
    manifest = attempt(store, 1)
    cache = BatchCache(store.directory, random_access=True)
    assert contents(Trace(manifest, cache).rows_at(0)) == {((1,), None, 0): 1}


def test_several_manifests_are_committed_together_or_not_at_all(store: ArrangementStore) -> None:
    """The second one has moved on, so the first stays as it is."""
    b = ArrangementId("b")
    store.install(Manifest.empty(b, LAYOUT, 0))
    first, second = (store.current(a) for a in (A, b))
    stale = Manifest.empty(b, LAYOUT, 7)
    with pytest.raises(StaleManifest, match="arrangement b"):
        store.commit_all([(first, first.append([], 0, 1)), (stale, stale.append([], 7, 8))])
    assert store.current(A) == first
    store.commit_all([(first, first.append([], 0, 1)), (second, second.append([], 0, 1))])
    assert [store.current(a).upper for a in (A, b)] == [1, 1]


def test_crash_a_file_that_the_disk_does_not_let_go_of_stops_nothing(store: ArrangementStore) -> None:
    """The commit stands, the file counts no more, and a later sweep takes it away."""
    attempt(store, 1)
    old = store.current(A)
    (path,) = (store.directory / file for file in old.files)
    path.unlink()
    path.mkdir()  # which cannot be removed as a file
    store.commit(old, Manifest.empty(A, LAYOUT, 0).append([], 0, 1))
    assert store.current(A).batches == ()
    assert store.bytes == 0
    store.discard(old.batches)
    assert store.sweep(running=[]) == 0
    path.rmdir()
    path.write_bytes(b"it can be removed by now")
    assert store.sweep(running=[]) == 1
    assert on_disk(store) == set()
