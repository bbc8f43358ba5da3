"""The width of the next step of a dataflow, by the time that its steps took."""

from __future__ import annotations

from tidemark_replica.dataflow.step_bound import CUT_STEPS, STEP_SECONDS, StepBound

QUICK, SLOW = STEP_SECONDS / 10, STEP_SECONDS * 10


def test_slow_steps_narrow_the_next_ones_and_quick_ones_widen_them() -> None:
    bound = StepBound(1000)
    bound.was_cut(SLOW)
    assert bound.rows == 500
    bound.was_cut(SLOW)
    assert bound.rows == 250
    for _ in range(3):
        bound.was_cut(QUICK)
    assert bound.rows == 1000


def test_a_lack_of_memory_is_forgotten_after_some_steps_without_one() -> None:
    """A dataflow that is far behind must not stay at one row a step: another one may have taken the memory."""
    bound = StepBound(1024)
    for _ in range(20):
        bound.ran_out_of_memory(1024)
    assert bound.rows == 1
    for _ in range(CUT_STEPS - 1):
        bound.was_cut(QUICK)
    assert bound.rows == 1
    for _ in range(10 * CUT_STEPS):
        bound.was_cut(QUICK)
    assert bound.rows == 1024


def test_a_dataflow_that_has_caught_up_has_the_whole_bound() -> None:
    bound = StepBound(1000)
    bound.ran_out_of_memory(1000)
    bound.has_caught_up()
    bound.was_cut(QUICK)
    assert bound.rows == 1000
