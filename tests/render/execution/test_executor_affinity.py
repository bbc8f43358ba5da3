"""The choice of a dataflow's home executor."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tidemark_replica.render.execution.executor_affinity import Executor, ExecutorAffinity, preferred_executor

NAMES = [f"namespace/view{number}" for number in range(3000)]
FIVE = [Executor(str(number)) for number in range(5)]


def test_every_executor_has_its_share() -> None:
    """Each has 600 of 3,000 dataflows, but for chance."""
    at = Counter(preferred_executor(name, FIVE) for name in NAMES)
    assert set(at) == set(FIVE)
    assert all(500 < members < 700 for members in at.values()), at


def test_dataflows_with_other_homes_stay_when_an_executor_goes() -> None:
    """And those of the one that went are spread over all that are left."""
    gone, *left = FIVE
    moved: Counter[Executor | None] = Counter()
    for name in NAMES:
        before, after = preferred_executor(name, FIVE), preferred_executor(name, left)
        if before == gone:
            moved[after] += 1
        else:
            assert after == before
    assert set(moved) == set(left)


def test_one_that_comes_takes_from_the_others_and_no_other_moves() -> None:
    """In whatever order they are told."""
    *before, come = FIVE
    after = {name: preferred_executor(name, FIVE[::-1]) for name in NAMES}
    assert all(home in (come, preferred_executor(name, before)) for name, home in after.items())
    assert come in after.values()


def test_without_executors_there_is_no_home() -> None:
    """There is none until an executor has come."""
    assert preferred_executor("view", []) is None


@pytest.mark.spark
def test_in_the_drivers_own_process_nothing_has_a_home(spark: Any) -> None:
    """And nothing is asked at any step."""
    assert ExecutorAffinity.of(spark) is None
