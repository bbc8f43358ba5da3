"""Small neighbouring batches of a spine are searched as one, and give the same rows."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, updates
from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.batches import batch, small_batches
from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.batches.key_lookup import Hits, Keys, probe
from tidemark_replica.arrangement.batches.small_batches import small_runs
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import arrange
from tidemark_replica.kernels.ranking.ranking import value_ordered_rows

TYPES = (pa.int64(), pa.string())
LAYOUT = Layout.of_rows(TYPES, (0,))


def stepped(folder: Path, rng: np.random.Generator, steps: int) -> Driver:
    """An arrangement of a batch per step, each of a few rows of ten keys."""
    driver = Driver(folder, Manifest.empty(A, LAYOUT, 0), merging=False)
    for step in range(steps):
        context = driver.context(step, step + 1, hydration=step == 0)
        rows = [((int(k), f"{step}"), step, 1) for k in rng.integers(0, 10, int(rng.integers(1, 9)))]
        list(arrange(context, A, [updates(list(TYPES), rows)]))
        driver.commit(context)
    return driver


def rows_of_hits(hits: Iterable[Hits]) -> Counter:
    columns = ([h.delta.tolist(), *(c.to_pylist() for c in h.stored.columns)] for h in hits)
    return Counter(row for each in columns for row in zip(*each, strict=True))


@pytest.mark.parametrize("before", [None, 4, 9])
def test_agree_a_lookup_in_small_batches_with_one_in_each(before: int | None, tmp_path: Path) -> None:
    """The same pairs, with and without a bound on times, as batches are added one by one."""
    rng = np.random.default_rng(7)
    driver = stepped(tmp_path, rng, 12)
    keys = Keys.of([pa.array([3, 1, 11, 7], pa.int64())], 4)
    whole, cache = driver.manifests[A], driver.cache
    for known in range(1, 13):
        manifest = Manifest(A, LAYOUT, 0, known, 0, whole.batches[:known])
        segments = [s for ref in manifest.batches for s in BatchCache(tmp_path).segments(ref, LAYOUT)]
        expected = rows_of_hits(probe(keys, segments, LAYOUT, before=before))
        assert rows_of_hits(Trace(manifest, cache).probe(keys, before=before)) == expected
        assert known < 6 or expected


def test_a_merged_batch_is_not_searched_any_more(tmp_path: Path) -> None:
    """A manifest whose batches begin elsewhere is put together anew, from its own."""
    driver = stepped(tmp_path, np.random.default_rng(3), 6)
    batches, keys = driver.manifests[A].batches, Keys.of([pa.array(range(10), pa.int64())], 10)
    for kept in (batches, batches[2:], batches[2:4], batches):
        stored = Trace(Manifest(A, LAYOUT, 0, 6, 0, kept), driver.cache).probe(keys)
        assert sum(len(h.delta) for h in stored) == sum(ref.rows for ref in kept)


def test_large_batches_stay_alone_and_runs_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The batches that are put together in memory are small, each and in all."""
    batches = stepped(tmp_path, np.random.default_rng(5), 6).manifests[A].batches
    size = max(ref.bytes for ref in batches)
    monkeypatch.setattr(small_batches, "RUN_BYTES", 3 * size)
    large = batches[2]._replace(bytes=batch.SMALL_BYTES + 1)
    runs = list(small_runs([*batches[:2], large, *batches[3:]]))
    assert [len(run) for run in runs] == [2, 1, 3]
    assert [ref for run in runs for ref in run] == [*batches[:2], large, *batches[3:]]
    monkeypatch.setattr(small_batches, "RUN_BYTES", size)
    assert all(len(run) == 1 for run in small_runs(batches))


def test_rows_sorted_by_value_stay_so(tmp_path: Path) -> None:
    """In an arrangement with an order the rows of a key are in that order across the batches."""
    layout = Layout.by_value(TYPES, (0,), (OrderKey(1, True, False),))
    driver = Driver(tmp_path, Manifest.empty(A, layout, 0), merging=False)
    for step, text in enumerate(["b", "d", "a", "c"]):
        context = driver.context(step, step + 1, hydration=step == 0)
        runs = StepRuns(context, A)
        runs.add(value_ordered_rows(updates(list(TYPES), [((1, text), step, 1)]), layout))
        runs.commit()
        driver.commit(context)
    (segment,) = Trace(driver.manifests[A], driver.cache).combined_segments()
    assert isinstance(segment, Segment)
    assert segment.rows.column(2).to_pylist() == ["d", "c", "b", "a"]
