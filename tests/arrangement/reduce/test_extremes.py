"""The kernel of min and max against Python's min and max, at every time, however a history is cut."""

from collections import Counter
from functools import cmp_to_key
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import TYPES, A, Driver, contents, seeds, updates
from tests.arrangement.ranking.first_rows_runs import CUTS, LAST, random_history, run
from tests.arrangement.value_model import at, compare
from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.rows.task_share import TaskShare
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.kernels.ranking.extremes import Extreme, ExtremesShape, ExtremesSpec, SortedValue, extremes
from tidemark_replica.kernels.ranking.state import RankingStateSpec


def spec_of(of: ExtremesShape) -> tuple[ExtremesSpec, dict]:
    """A state for each value, and their layouts."""
    names = [ArrangementId(f"a{i}") for i in range(len(of.values))]
    layouts = {name: of.ranking(value).layout for name, value in zip(names, of.values, strict=True)}
    return ExtremesSpec(of, tuple(map(RankingStateSpec, names))), layouts


def extreme(rows: list[tuple], value: SortedValue) -> object:
    """The least or greatest value that is not NULL, of rows that the filter lets through."""
    found = [
        (row[value.argument],)
        for row in rows
        if row[value.argument] is not None and (value.filter is None or row[value.filter])
    ]
    ordered = sorted(found, key=cmp_to_key(lambda a, b: compare([OrderKey(0)], a, b)))
    return None if not ordered else ordered[-1 if value.greatest else 0][0]


def expected_output(history: list[tuple], of: ExtremesShape, as_of: int) -> Counter:
    """From time to time, by how much it changes what is shown."""
    result: Counter = Counter()
    shown: Counter = Counter()
    for time in range(as_of, LAST):
        groups: dict[tuple, list[tuple]] = {} if of.key else {(): []}
        for row in at(history, time):
            groups.setdefault(tuple(row[k] for k in of.key), []).append(row)
        now = Counter((*key, *(extreme(rows, e.value) for e in of.extremes)) for key, rows in groups.items())
        for row in {*now, *shown}:
            result[row, None, time] += now[row] - shown[row]
        shown = now
    return Counter({k: d for k, d in result.items() if d})


@pytest.mark.parametrize("key", [(0, 1), ()], ids=str)
@pytest.mark.parametrize("seed", seeds(5, 30))
def test_split_every_cut_of_a_history_gives_the_exact_output(seed: int, key: tuple[int, ...], tmp_path: Path) -> None:
    """Several values, directions and filters; groups that empty and refill, are all NULL, or share a hash."""
    rng = np.random.default_rng(seed)
    types = (pa.int64(), pa.int64(), TYPES[rng.integers(len(TYPES))], TYPES[rng.integers(len(TYPES))], pa.bool_())
    values = [
        SortedValue(2, False),
        SortedValue(2, True),
        SortedValue(3, bool(rng.integers(2)), 4),
        SortedValue(2, False),
        SortedValue(3, True),
    ]
    chosen = [values[i] for i in rng.integers(0, len(values), rng.integers(1, 5))]
    of = ExtremesShape(types, key, tuple(Extreme(v, f"e{i}") for i, v in enumerate(chosen)))
    history = random_history(rng, list(types), least=0)
    expected = expected_output(history, of, 2)
    for chunk_rows, cuts in CUTS:
        spec, layouts = spec_of(of)
        result = run(tmp_path, extremes, spec, list(types), layouts, history, cuts, rng, chunk_rows)
        assert result == expected


MIN_AND_MAX = ExtremesShape(
    (pa.int64(), pa.int64()), (0,), (Extreme(SortedValue(1, False), "min(v)"), Extreme(SortedValue(1, True), "max(v)"))
)


def extremes_of(tmp_path: Path, of: ExtremesShape, steps: list[list[tuple]]) -> list[dict]:
    """The output of steps at times 0, 1, 2, ..."""
    spec, layouts = spec_of(of)
    driver = Driver(tmp_path, *(Manifest.empty(a, layout, 0) for a, layout in layouts.items()))
    result = []
    for time, rows in enumerate(steps):
        context = driver.context(time, time + 1, hydration=time == 0)
        made = contents(extremes(context, spec, [updates(list(of.types), [(r, time, d) for r, d in rows])]))
        result.append({row if error is None else error: diff for (row, error, _), diff in made.items()})
        driver.commit(context, compact=True)
    return result


def test_a_negative_multiplicity_before_the_answer_is_an_error_until_it_is_repaired(tmp_path: Path) -> None:
    """At the other end of the group nobody looks, so one of two aggregates names it; it takes the row's place."""
    error = '{"code":"NEGATIVE_MULTIPLICITY","expression":"min(v)"}'
    assert extremes_of(tmp_path, MIN_AND_MAX, [[((1, 5), 1)], [((1, 3), -1)], [((1, 3), 2)]]) == [
        {(1, 5, 5): 1},
        {(1, 5, 5): -1, error: 1},
        {error: -1, (1, 3, 5): 1},
    ]


def test_the_global_row_is_there_before_any_input(tmp_path: Path) -> None:
    """NULL over nothing; filled, then emptied, it comes back to that."""
    of = ExtremesShape((pa.int64(),), (), (Extreme(SortedValue(0, False), "min(v)"),))
    steps = extremes_of(tmp_path, of, [[], [((5,), 1)], [], [((5,), -1)]])
    assert steps == [{(None,): 1}, {(None,): -1, (5,): 1}, {}, {(5,): -1, (None,): 1}]


def test_the_global_row_over_many_times_in_the_first_step(tmp_path: Path) -> None:
    """More times than are looked at side by side, every other one without rows: the row of each takes its turn."""
    of = ExtremesShape((pa.int64(),), (), (Extreme(SortedValue(0, True), "max(v)"),))
    spec, layouts = spec_of(of)
    driver = Driver(tmp_path, *(Manifest.empty(a, layout, 0) for a, layout in layouts.items()))
    rows = [((i,), i + gone, 1 - 2 * gone) for i in range(0, 40, 2) for gone in (0, 1)]
    made = contents(extremes(driver.context(0, 40, hydration=True), spec, [updates([pa.int64()], rows)]))
    shown = [(i if i % 2 == 0 else None,) for i in range(40)]
    expected = Counter({(row, None, i): 1 for i, row in enumerate(shown)})
    expected.update({(row, None, i + 1): -1 for i, row in enumerate(shown[:-1])})
    assert made == expected


def test_only_the_share_of_the_only_group_emits_the_global_row(tmp_path: Path) -> None:
    """One of several tasks over an empty input emits it."""
    of = ExtremesShape((pa.int64(),), (), (Extreme(SortedValue(0, True), "max(v)"),))
    driver = Driver(tmp_path, Manifest.empty(A, of.ranking(of.values[0]).layout, 0))
    contexts = [driver.context(0, 1, hydration=True, share=TaskShare(b, 5)) for b in range(5)]
    outputs = [contents(extremes(c, ExtremesSpec(of, (RankingStateSpec(A),)), [])) for c in contexts]
    assert sorted(map(len, outputs)) == [0, 0, 0, 0, 1]
