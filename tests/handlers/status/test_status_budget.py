"""The budget of status writes, under a clock of our own."""

from __future__ import annotations

from itertools import pairwise

from tidemark_operator.handlers.publish.status_budget import OBJECT_INTERVAL_SECONDS, StatusBudget


def write(budget: StatusBudget[int], keys: list[int], now: float) -> list[int]:
    chosen = budget.choose(keys, now)
    for key in chosen:
        budget.written(key, now)
    return chosen


def test_must_an_object_is_written_at_most_every_five_seconds() -> None:
    """However often its frontiers move."""
    budget: StatusBudget[int] = StatusBudget(0.0)

    times = [t / 10 for t in range(300) if write(budget, [1], t / 10)]

    assert all(b - a >= OBJECT_INTERVAL_SECONDS for a, b in pairwise(times))
    assert len(times) == 6


def test_must_all_objects_together_are_written_ten_times_a_second() -> None:
    """A thousand objects move all the time; each gets its turn, the longest waiting first."""
    budget: StatusBudget[int] = StatusBudget(0.0)
    objects = list(range(1000))
    written = [key for second in range(120) for key in write(budget, objects, float(second))]

    assert len(written) <= 10 * 120 + 10
    assert set(written) == set(objects)


def test_a_write_for_another_reason_counts() -> None:
    """Conditions were written a second ago, and frontiers with them."""
    budget: StatusBudget[int] = StatusBudget(0.0)
    budget.written(1, 10.0)

    assert budget.choose([1], 11.0) == []
    assert budget.choose([1], 15.0) == [1]


def test_must_no_status_waits_for_more_than_five_minutes() -> None:
    """Not even where the budget is exhausted by others that have never been written."""
    budget: StatusBudget[int] = StatusBudget(0.0)
    write(budget, [-1], 0.0)
    for key in range(100_000):
        budget.written(key, 0.0)

    assert -1 in budget.choose([-1, *range(100_000)], 300.0)


def test_deleted_objects_are_forgotten() -> None:
    """Names that are never used again would be remembered for ever."""
    budget: StatusBudget[int] = StatusBudget(0.0)
    for key in range(100):
        budget.written(key, 1.0)
    budget.keep({7})
    assert write(budget, [7, 8], 2.0) == [8]
    assert budget._written.keys() == {7, 8}
