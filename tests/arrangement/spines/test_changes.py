"""Changes as a collection, and a view's contents at each of them, against a fold over the times of a history."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, contents, seeds, updates
from tidemark_replica.arrangement.errors import DiffOverflow
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.changes import ChangesSpec, changes
from tidemark_replica.kernels.continual_task import ContinualTaskSpec, continual_task

WATCHED = (pa.int64(), pa.string())
VIEW = (pa.string(), pa.float64())
B = ArrangementId("b")
SPEC = ChangesSpec(A, WATCHED)
TASK = ContinualTaskSpec(SPEC, B, VIEW)
AS_OF, LAST = 2, 14
Updates = list[tuple]


def history(rng: np.random.Generator, rows: Updates, size: int) -> Updates:
    """Rows that come and go, often twice at one time, so that nothing changes."""
    made = []
    for _ in range(size):
        row, time = rows[rng.integers(len(rows))], int(rng.integers(0, LAST))
        made.append((row, time, int(rng.choice([-2, -1, 1, 2]))))
        if rng.random() < 0.4:
            made.append((row, time, -made[-1][2]))
    return made


def net(rows: Updates) -> dict[int, Counter]:
    """By time, what changes: errors are no changes."""
    found: dict[int, Counter] = {}
    for row, time, diff in rows:
        if not isinstance(row, str) and time > AS_OF:
            found.setdefault(time, Counter())[row] += diff
    return {t: c for t, counts in sorted(found.items()) if (c := Counter({r: n for r, n in counts.items() if n}))}


def held(rows: Updates, time: int) -> Counter:
    """The contents at a time, errors among them."""
    found: Counter = Counter()
    for row, at, diff in rows:
        if at <= time:
            found[((None, None), row) if isinstance(row, str) else (row, None)] += diff
    return Counter({r: n for r, n in found.items() if n})


def steps(folder: Path, bounds: list[int], chunk_rows: int) -> tuple[Driver, list[StepContext]]:
    driver = Driver(
        folder,
        Manifest.empty(A, SPEC.layout, AS_OF),
        Manifest.empty(B, TASK.layout, AS_OF),
        chunk_rows=chunk_rows,
    )
    return driver, [driver.context(lo, up, hydration=lo == AS_OF) for lo, up in pairwise(bounds)]


def of_step(context: StepContext, rows: Updates) -> Updates:
    """The input of the step: at hydration, the past as if it happened at the as_of."""
    moved = ((row, max(time, AS_OF), diff) for row, time, diff in rows)
    return [u for u in moved if context.lower <= u[1] < context.upper]


CUTS = ((1000, [AS_OF, LAST]), (5, [AS_OF, 3, 7, 8, LAST]), (1, list(range(AS_OF, LAST + 1))))


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_split_changes_are_each_times_net_gains_and_losses(seed: int, tmp_path: Path) -> None:
    """In steps and chunks of all sizes: at each time what it gained and lost, but nothing of what the as_of held."""
    rng = np.random.default_rng(seed)
    rows = history(rng, [(1, "a"), (1, None), (None, "b"), "boom"], 60)
    expected: Counter = Counter()
    for time, counts in net(rows).items():
        for row, diff in counts.items():
            stamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
            expected[(*row, "insert" if diff > 0 else "delete", stamp, time + 1), None, time] += abs(diff)
    errors: Counter = Counter()
    for row, time, diff in rows:
        if isinstance(row, str):
            errors[(None,) * 5, row, max(time, AS_OF)] += diff
    expected.update({key: n for key, n in errors.items() if n})
    for chunk_rows, bounds in CUTS:
        driver, contexts = steps(tmp_path / str(chunk_rows), bounds, chunk_rows)
        made: Counter = Counter()
        for context in contexts:
            made.update(contents(changes(context, SPEC, [updates(list(WATCHED), of_step(context, rows))])))

        assert Counter({k: n for k, n in made.items() if n}) == expected, bounds
        assert list(driver.directory.rglob("*.arrow")) == []


@pytest.mark.parametrize("seed", seeds(6, 30))
def test_split_the_whole_view_is_given_at_each_change_and_never_taken_back(seed: int, tmp_path: Path) -> None:
    """Several changes in one step give what one step each gives, errors of the view among the rows."""
    rng = np.random.default_rng(seed)
    watched = history(rng, [(1, "a"), (2, "b"), "boom"], int(rng.choice([4, 12])))
    view = history(rng, [("x", 0.5), ("x", None), (None, float("nan")), "bad"], 80)
    expected: Counter = Counter()
    for time in net(watched):
        for (row, error), n in held(
            [((r if isinstance(r, str) else plain(r)), t, d) for r, t, d in view], time
        ).items():
            expected[row, error, time] += n
    for chunk_rows, bounds in CUTS:
        driver, contexts = steps(tmp_path / str(chunk_rows), bounds, chunk_rows)
        made: Counter = Counter()
        for context in contexts:
            context = replace(context, manifests=driver.manifests)
            inputs = [updates(list(types), of_step(context, of)) for types, of in ((WATCHED, watched), (VIEW, view))]
            for batch in continual_task(context, TASK, [inputs[0]], [inputs[1]]):
                assert batch.num_rows <= chunk_rows
                made.update(contents(batch))
            driver.commit(context, compact=bool(rng.integers(0, 2)))

        assert made == expected, bounds


def plain(row: tuple) -> tuple:
    return tuple("NaN" if isinstance(v, float) and v != v else v for v in row)


def test_a_view_that_changes_alone_gives_nothing_until_the_watched_input_changes(tmp_path: Path) -> None:
    """The rows that it held all along are given then, and again at the next change."""
    driver, (first, second, third) = steps(tmp_path, [AS_OF, 5, 9, LAST], 100)
    made = []
    for context, watched, view in (
        (first, [((1, "a"), AS_OF, 1)], [(("x", 1.0), AS_OF, 2)]),
        (second, [((1, "a"), 6, -1), ((1, "b"), 8, 1)], [(("x", 1.0), 8, -1)]),
        (third, [((1, "b"), 10, 1), ((1, "b"), 10, -1)], [(("y", 1.0), 10, 1)]),
    ):
        context = replace(context, manifests=driver.manifests)
        made.append(
            contents(continual_task(context, TASK, [updates(list(WATCHED), watched)], [updates(list(VIEW), view)]))
        )
        driver.commit(context, compact=True)

    assert made == [{}, {(("x", 1.0), None, 6): 2, (("x", 1.0), None, 8): 1}, {}]


def test_multiplicities_that_cannot_be_added_up_are_refused(tmp_path: Path) -> None:
    """An overflow is an error, not a wrong number."""
    _, (context,) = steps(tmp_path, [AS_OF, LAST], 100)
    view = [(("x", 1.0), 3, 2**62), (("x", 1.0), 4, 2**62)]
    with pytest.raises(DiffOverflow):
        list(continual_task(context, TASK, [updates(list(WATCHED), [((1, "a"), 5, 1)])], [updates(list(VIEW), view)]))
