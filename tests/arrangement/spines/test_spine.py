"""Spines against a dictionary: appends, merges and compaction change no contents at a readable time."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import TYPES, A, Driver, at, contents, pool, seeds, updates
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.errors import OutOfFrontier, StaleManifest, StepAbandoned
from tidemark_replica.arrangement.rows.columns import is_bytes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import FAN_IN, SMALL_ROWS, Merge, apply, newest_run, plan_merges
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.step import BatchWriter, StepId, merge
from tidemark_replica.kernels.arrange import arrange


def random_rows(rng: np.random.Generator, types: list[pa.DataType], lower: int, upper: int, n: int) -> list[tuple]:
    pools = [pool(t) for t in types]
    rows = []
    for _ in range(n):
        values = tuple(p[rng.integers(0, len(p))] for p in pools)
        row = "oops" if rng.integers(0, 9) == 0 else values
        rows.append((row, int(rng.integers(lower, upper)), int(rng.integers(-2, 3))))
    return rows


@pytest.mark.parametrize("seed", seeds(6, 24))
def test_every_time_from_since_on_reads_as_a_dictionary_does(seed: int, tmp_path: Path) -> None:
    """Random steps, since moving up at random, merges after each commit; small chunks."""
    rng = np.random.default_rng(seed)
    types = [TYPES[i] for i in rng.integers(0, len(TYPES), 2)]
    layout = Layout.of_rows(types, [1] if seed % 3 else [1, 0])
    driver = Driver(tmp_path, Manifest.empty(A, layout, 10), chunk_rows=16)
    model, lower = contents([]), 10
    for _ in range(15):
        upper = lower + int(rng.integers(1, 5))
        batch = updates(types, random_rows(rng, types, lower, upper, int(rng.choice([0, 3, 60]))))
        context = driver.context(lower, upper)
        passed_on = contents(arrange(context, A, [batch]))
        assert passed_on == contents(batch)
        driver.commit(context, compact=bool(rng.integers(0, 2)))
        model.update(contents(batch))
        lower = upper
        trace = Trace(driver.manifests[A], driver.cache)
        for as_of in range(trace.manifest.since, upper):
            assert_reads_as(trace, model, as_of)
    assert len(driver.manifests[A].batches) < 15


def assert_reads_as(trace: Trace, model, as_of: int) -> None:
    expected = at(model, as_of)
    read = list(trace.rows_at(as_of, range_rows=7))
    found = contents(read)
    assert {(row, error): d for (row, error, _), d in found.items()} == expected
    assert sum(b.num_rows for b in read) == len(expected)
    errors = {error: d for (row, error, _), d in contents(trace.errors_at(as_of)).items()}
    assert errors == {error: d for (row, error), d in expected.items() if error}


@pytest.mark.parametrize("seed", range(5))
def test_scan_gives_the_updates_of_a_range_of_times(seed: int, tmp_path: Path) -> None:
    """A reader that holds since below its lower sees each update with its own time, also after merges."""
    rng = np.random.default_rng(seed)
    driver = Driver(tmp_path, Manifest.empty(A, Layout.of_rows([pa.int64()], [0]), 0))
    model = contents([])
    for lower in range(0, 40, 2):
        batch = updates([pa.int64()], random_rows(rng, [pa.int64()], lower, lower + 2, 10))
        context = driver.context(lower, lower + 2)
        list(arrange(context, A, [batch]))
        driver.commit(context)
        model.update(contents(batch))
    driver.manifests[A] = driver.merged(driver.manifests[A].allow_compaction(9))
    trace = Trace(driver.manifests[A], driver.cache)

    found = contents(trace.scan(10, 33))

    assert found == {k: d for k, d in model.items() if 10 <= k[2] < 33 and d}
    with pytest.raises(OutOfFrontier, match="are compacted"):
        list(trace.scan(9, 12))
    with pytest.raises(OutOfFrontier, match="complete up to 40"):
        list(trace.scan(10, 41))


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_lookup_finds_exactly_the_rows_of_a_key(t: pa.DataType, tmp_path: Path) -> None:
    """Every value of every type can be looked up; NULL and NaN too; nothing else comes back."""
    rng = np.random.default_rng(7)
    layout = Layout.of_rows([pa.int64(), t], [1])
    driver = Driver(tmp_path, Manifest.empty(A, layout, 0))
    batch = updates([pa.int64(), t], random_rows(rng, [pa.int64(), t], 0, 4, 200))
    context = driver.context(0, 4)
    list(arrange(context, A, [batch]))
    driver.commit(context)
    trace = Trace(driver.manifests[A], driver.cache)
    missing = pa.array([b"nowhere"], pa.binary()).cast(t) if is_bytes(t) else None
    for key in [pa.array([v], t) for v in pool(t)] + ([missing] if missing else []):
        alive_file = contents(updates([t], [((key[0].as_py(),), 0, 1)])).popitem()[0][0][0]
        expected = {(r, e): d for (r, e), d in at(contents(batch), 2).items() if e is None and r[1] == alive_file}
        found = {(r, e): d for (r, e, _), d in contents(trace.lookup([key], 2)).items()}
        assert found == expected


K = 1000


def test_sizes_double_from_batch_to_batch() -> None:
    """A batch less than twice as long as the next is merged with all newer ones, and with older ones if need be."""
    assert newest_run([1000 * K, 60 * K, 9 * K, 5 * K, 5 * K]) == 2
    assert newest_run([1000 * K, 60 * K, 20 * K, 10 * K, 5 * K]) == 4
    assert newest_run([100 * K, 60 * K, 20 * K]) == 0
    assert newest_run([7 * K]) == 0
    assert newest_run([]) == 0


def test_small_batches_wait_for_more_of_their_kind() -> None:
    """Seven of them are looked into, the eighth makes them one, together with what is less than twice as long."""
    assert newest_run([100 * K, *[1] * 7]) == 7
    assert newest_run([100 * K, *[1] * 8]) == 1
    assert newest_run([100 * K, 10 * K, *[K] * 8]) == 1
    assert newest_run([100 * K, 8 * K, 5 * K, 1, 1]) == 1
    assert newest_run([1, 2, 5 * K]) == 0


@pytest.mark.parametrize("rows", [1, 100, SMALL_ROWS // 3, SMALL_ROWS, 10 * SMALL_ROWS])
def test_merging_costs_logarithmically_often(rows: int) -> None:
    """Steps of equal size leave O(log n) batches, beside small ones, and rewrite each row O(log n) times."""
    steps, written, most = 5000, 0, 0
    sizes: list[int] = []
    for _ in range(steps):
        sizes.append(rows)
        begin = newest_run(sizes)
        if begin < len(sizes) - 1:
            sizes[begin:] = [sum(sizes[begin:])]
            written += sizes[-1]
        most = max(most, len(sizes))
    doublings = math.log2(max(steps * rows / SMALL_ROWS, 2))
    fills = SMALL_ROWS / rows / FAN_IN  # how often a small batch is merged before it is none
    assert most <= FAN_IN + doublings
    assert written <= steps * rows * (doublings + min(fills, steps / FAN_IN) + 1)


def test_an_idle_arrangement_collapses_its_history(tmp_path: Path) -> None:
    """When since passes a batch's last time it is rewritten once, and what has cancelled is gone."""
    driver, last = collapsible(tmp_path, SMALL_ROWS)
    assert driver.manifests[A].rows == SMALL_ROWS + 1

    compacted = driver.merged(driver.manifests[A].allow_compaction(last))

    assert compacted.rows == 1
    assert plan_merges(compacted) == ()
    assert driver.merged(compacted) is compacted


def test_a_small_batch_of_several_times_waits_for_the_next_merge(tmp_path: Path) -> None:
    """A dataflow that is a few ticks behind writes one at every step, and would rewrite it at the next."""
    driver, last = collapsible(tmp_path, 8)

    assert plan_merges(driver.manifests[A].allow_compaction(last)) == ()


def test_a_batch_that_is_read_by_time_waits_for_the_next_merge() -> None:
    """The newest batch has several times that readers still need: a merge now would be repeated in the next step."""
    old, newest = _ref(0, 10, SMALL_ROWS, (0, 9)), _ref(10, 20, SMALL_ROWS, (10, 19))
    manifest = Manifest(A, Layout.of_rows([pa.int64()], [0]), 0, 20, 9, (_ref(0, 1, 100, (0, 0)), old, newest))

    assert [task.batches for task in plan_merges(manifest)] == [manifest.batches[:2]]
    assert [task.batches for task in plan_merges(manifest.allow_compaction(19))] == [manifest.batches]
    one_time = replace(manifest, batches=(*manifest.batches[:2], _ref(10, 20, SMALL_ROWS, (10, 10))))
    assert [task.batches for task in plan_merges(one_time)] == [one_time.batches]


def _ref(lower: int, upper: int, rows: int, times: tuple[int, int]) -> BatchRef:
    return BatchRef(f"a/{lower}-{rows}.arrow", lower, upper, lower, rows, 0, *times, 8 * rows, 1, 2)


def collapsible(folder: Path, updates_of_one: int) -> tuple[Driver, int]:
    """An arrangement of one batch: a row that comes and goes so often, and another; and its last time."""
    driver = Driver(folder, Manifest.empty(A, Layout.of_rows([pa.int64()], [0]), 0))
    context = driver.context(0, updates_of_one + 2)
    rows = [((1,), t, 1 if t % 2 else -1) for t in range(updates_of_one)] + [((2,), 3, 1)]
    list(arrange(context, A, [updates([pa.int64()], rows)]))
    driver.commit(context)
    return driver, updates_of_one + 1


def test_a_merge_that_cancels_everything_leaves_no_file(tmp_path: Path) -> None:
    """+1 and -1 merge to nothing: no batch, no empty file."""
    driver = Driver(tmp_path, Manifest.empty(A, Layout.of_rows([pa.int64()], [0]), 0))
    for step, diff in enumerate([1, -1] * (FAN_IN // 2)):
        context = driver.context(step, step + 1)
        list(arrange(context, A, [updates([pa.int64()], [((1,), step, diff)])]))
        driver.commit(context, compact=True)
    assert driver.manifests[A].batches == ()
    assert not list(tmp_path.glob("*/*.tmp"))


def test_a_merge_of_batches_that_are_gone_is_refused(tmp_path: Path) -> None:
    """A merge result is put in place once only, and never into an arrangement that must read earlier times."""
    driver = Driver(tmp_path, Manifest.empty(A, Layout.of_rows([pa.int64()], [0]), 0), merging=False)
    for step in range(FAN_IN):
        context = driver.context(step, step + 1)
        list(arrange(context, A, [updates([pa.int64()], [((step,), step, 1)])]))
        driver.commit(context)
    manifest = driver.manifests[A]
    (task,) = plan_merges(manifest)
    merged = apply(manifest, task, None)
    with pytest.raises(StaleManifest, match="no longer holds"):
        apply(merged, task, None)
    with pytest.raises(StaleManifest, match="must stay readable"):
        apply(manifest, Merge(A, task.batches, 1), None)


def test_a_manifest_survives_json(tmp_path: Path) -> None:
    """Manifests travel to tasks as JSON: every type, key and batch comes back equal."""
    import json

    layout = Layout.of_rows(TYPES, [0, 9])
    driver = Driver(tmp_path, Manifest.empty(A, layout, 0))
    context = driver.context(0, 3)
    list(arrange(context, A, [updates(TYPES, random_rows(np.random.default_rng(0), TYPES, 0, 3, 20))]))
    driver.commit(context)
    manifest = driver.manifests[A]
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
    with pytest.raises(StaleManifest, match="format 3"):
        Manifest.from_json({**manifest.to_json(), "format": 1})


def test_a_since_at_the_upper_hides_nothing_from_later_steps(tmp_path: Path) -> None:
    """Whoever allows too much compaction loses history, but a merge never moves an update past the upper."""
    driver = Driver(tmp_path, Manifest.empty(A, Layout.of_rows([pa.int64()], [0]), 0))
    for step in range(FAN_IN):
        context = driver.context(step, step + 1)
        list(arrange(context, A, [updates([pa.int64()], [((step,), step, 1)])]))
        driver.commit(context)
    compacted = driver.merged(driver.manifests[A].allow_compaction(2**62))
    assert [b.last_time for b in compacted.batches] == [FAN_IN - 1]


def test_an_arrangements_id_is_a_plain_name() -> None:
    """It names a directory: no way out of the store by it."""
    for name in ("../up", "a/b", ".."):
        with pytest.raises(ValueError, match="cannot be the name of a directory"):
            Manifest.empty(ArrangementId(name), Layout.of_rows([pa.int64()], [0]), 0)


def test_steps_follow_one_another() -> None:
    """A step that does not begin where the arrangement ends is refused."""
    manifest = Manifest.empty(A, Layout.of_rows([pa.int64()], [0]), 5)
    with pytest.raises(StaleManifest, match="complete up to 5"):
        manifest.append([], 6, 7)
    assert manifest.append([], 5, 7).append([], 7, 8).upper == 8
    assert manifest.allow_compaction(9).allow_compaction(7).since == 9


def test_a_merge_without_a_waiter_ends_at_its_next_range(tmp_path: Path) -> None:
    """A drop does not wait for the rest of a long one, and finds no file of it."""
    driver = Driver(tmp_path, Manifest.empty(A, Layout.of_rows([pa.int64()], [0]), 0), merging=False)
    for time in (0, 1):
        context = driver.context(time, time + 1, hydration=time == 0)
        list(arrange(context, A, [updates([pa.int64()], [((n,), time, 1) for n in range(100)])]))
        driver.commit(context)
    task = Merge(A, driver.manifests[A].batches, 1)
    alive_file = tmp_path / "wanted"
    alive_file.touch()
    writer = BatchWriter(tmp_path, StepId("merge"), alive_file=alive_file)
    ranges = writer.while_step_alive(iter(range(3)))

    assert next(ranges) == 0
    alive_file.unlink()
    with pytest.raises(StepAbandoned):
        next(ranges)
    with pytest.raises(StepAbandoned):
        merge(task, driver.manifests[A].layout, driver.cache, writer)
    assert not list(tmp_path.glob("*/merge-*"))
