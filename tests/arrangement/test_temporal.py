"""Temporal filters: rows appear and disappear at their bounds, in steps of any size."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, contents, seeds, updates
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.kernels import temporal as kernel
from tidemark_replica.kernels.temporal import TemporalSpec, due_rows, temporal

MICROS = pa.timestamp("us", "UTC")
SPEC = TemporalSpec(A, (pa.string(),), (1,), (2,))
INPUT = [pa.string(), MICROS, pa.int64()]
END = 2**63 - 1


def at(milliseconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def run(folder: Path, history: list[tuple], bounds: list[int], *, until: int | None = None) -> Counter:
    """The kernel's output over steps that end at `bounds`; the first hydrates from time 0."""
    driver = Driver(folder, Manifest.empty(A, SPEC.layout, 0))
    made: Counter = Counter()
    lower = 0
    for upper in bounds:
        context = replace(driver.context(lower, upper, hydration=lower == 0), until=until)
        now = [u for u in history if lower <= u[1] < upper]
        made.update(contents(temporal(context, SPEC, [updates(INPUT, now)])))
        driver.commit(context, compact=True)
        lower = upper
    return Counter({k: n for k, n in made.items() if n})


def expected(history: list[tuple], last: int) -> Counter:
    """By the definition: at every time the rows whose bounds hold then, as differences from time to time."""
    made: Counter = Counter()
    before: Counter = Counter()
    for now in range(last):
        shown: Counter = Counter()
        for row, time, diff in history:
            if time > now:
                continue
            if isinstance(row, str):
                shown[(None,), row] += diff
            elif None not in row[1:] and row[1] <= at(now) and now < row[2]:
                shown[(row[0],), None] += diff
        for (row, error), n in (shown - before).items():
            made[row, error, now] += n
        for (row, error), n in (before - shown).items():
            made[row, error, now] -= n
        before = shown
    return Counter({k: n for k, n in made.items() if n})


def random_history(seed: int) -> list[tuple]:
    """Rows that come and go, some of them with bounds that are never, always, or not known."""
    rng = random.Random(seed)
    alive, made = [], []
    for time in sorted(rng.choices(range(30), k=25)):
        if alive and rng.random() < 0.4:
            made.append((alive.pop(rng.randrange(len(alive))), time, -1))
            continue
        begin = rng.choice([None, at(-5), *(at(rng.randrange(40) + rng.choice([0, 0.001, 0.999])) for _ in range(6))])
        row = "e" if rng.random() < 0.1 else (rng.choice("xyz"), begin, rng.choice([None, 0, END, *range(10, 45, 5)]))
        alive.append(row)
        made.append((row, time, 1))
    return made


@pytest.mark.parametrize("seed", seeds(12, 100))
def test_split_rows_are_visible_within_their_bounds_in_steps_of_any_length(tmp_path: Path, seed: int) -> None:
    """Against the definition, at every millisecond; in one step, in random ones, and tick by tick."""
    history = random_history(seed)
    rng = random.Random(-seed)
    cuts = sorted({*rng.sample(range(1, 50), 4), 50})
    want = expected(history, 50)

    for name, bounds in (("one", [50]), ("some", cuts), ("each", list(range(1, 51)))):
        assert run(tmp_path / name, history, bounds) == want, name


def test_a_step_over_more_buckets_than_are_looked_up_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that was away for years finds what fell due in between."""
    far = 5 << kernel.BUCKET_BITS
    history = [(("x", at(2), far), 1, 1), (("y", at(far + 1), END), 1, 1)]
    looked_up = run(tmp_path / "few", history, [2, far + 10])
    monkeypatch.setattr(kernel, "MOST_BUCKETS", 1)

    assert run(tmp_path / "many", history, [2, far + 10]) == looked_up
    assert set(looked_up) == {(("x",), None, 2), (("x",), None, far), (("y",), None, far + 1)}


def test_nothing_is_shown_from_until_on(tmp_path: Path) -> None:
    """The step up to the end of time gives what comes before `until`."""
    history = [(("x", at(2), 9), 1, 1), (("y", at(7), END), 1, 1)]

    assert set(run(tmp_path, history, [3, END], until=7)) == {(("x",), None, 2)}


def test_a_step_in_which_nothing_falls_due_needs_no_job(tmp_path: Path) -> None:
    """The store says when something waits; what has been shown waits no more, also before any merge."""
    driver = Driver(tmp_path, Manifest.empty(A, SPEC.layout, 0), merging=False)
    for lower, upper in ((0, 5), (5, 9)):
        context = driver.context(lower, upper, hydration=lower == 0)
        rows = [(("x", at(7), 20), 1, 1)] if lower == 0 else []
        list(temporal(context, SPEC, [updates(INPUT, rows)]))
        driver.commit(context)
    trace = Trace(driver.manifests[A], driver.cache)

    assert due_rows(trace, 9, 20) == 0
    assert due_rows(trace, 9, 21) > 0


def test_passed_rows_are_not_kept(tmp_path: Path) -> None:
    """A row that came and went leaves nothing behind once the store has merged."""
    driver = Driver(tmp_path, Manifest.empty(A, SPEC.layout, 0))
    for tick in range(64):
        context = driver.context(tick, tick + 1, hydration=tick == 0)
        list(temporal(context, SPEC, [updates(INPUT, [((f"r{tick}", at(tick + 2), tick + 4), tick, 1)])]))
        driver.commit(context, compact=True)

    assert driver.manifests[A].rows <= 32
