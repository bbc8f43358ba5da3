"""Decisions by cost: nothing before there are measurements, hysteresis, trials, and steps that are not worth it."""

from __future__ import annotations

from tidemark_replica.dataflow.refreshes.step_costs import (
    COLD_SECONDS,
    COLD_SHARE,
    FACTOR_TO_BEGIN,
    GROWTH_MAX,
    SECONDS_MIN,
    StepCosts,
)

TABLE = 1_000_000


def costs(*, hydration: float = 10.0, steps: dict[int, float]) -> StepCosts:
    made = StepCosts()
    made.hydrated(TABLE, 10 * hydration)  # the first one is cold, and does not count beside another
    made.hydrated(TABLE, hydration)
    for rows, seconds in steps.items():
        made.stepped(rows, seconds)
    return made


def decide(of: StepCosts, rows: int, table: int = TABLE) -> bool:
    estimate = of.estimate(rows, table)
    return estimate is not None and of.decide(estimate)


def test_nothing_is_decided_before_there_are_measurements() -> None:
    assert StepCosts().estimate(10, TABLE) is None
    only_hydrated, only_stepped = costs(steps={}), StepCosts()
    only_stepped.stepped(100, 1000.0)
    for each in (only_hydrated, only_stepped):
        assert (each.estimate(100, TABLE), each.least_rows(TABLE)) == (None, None)


def test_a_share_of_the_first_hydration_counts_until_there_is_another() -> None:
    """It is cold. A recomputation that turns out to be dear is the only one."""
    of = StepCosts()
    of.hydrated(TABLE, 10.0)
    of.stepped(1000, 10.0 * COLD_SHARE * FACTOR_TO_BEGIN + 0.1)
    estimate = of.estimate(1000, TABLE)
    assert estimate is not None
    assert estimate.hydration == 10.0 * COLD_SHARE
    assert of.decide(estimate)
    of.recomputed(estimate, TABLE, 10.0)
    assert not decide(of, 1000)


def test_what_is_left_out_of_a_cold_hydration_does_not_grow_with_it() -> None:
    """Loading code takes seconds, whatever the rows."""
    of = StepCosts()
    of.hydrated(TABLE, 3600.0)
    of.stepped(1000, 1200.0)
    assert not decide(of, 1000)
    estimate = of.estimate(1000, TABLE)
    assert estimate is not None
    assert estimate.hydration == 3600.0 - COLD_SECONDS


def test_a_burst_beyond_all_measured_steps_is_stepped_over_also_after_a_cold_hydration() -> None:
    """Both sides of the comparison are of the same hydration."""
    of = StepCosts()
    of.hydrated(TABLE, 20.0)
    of.stepped(1, 0.1)
    assert not decide(of, TABLE // 2, TABLE * 3 // 2)
    assert of.least_rows(TABLE) is None or not decide(of, TABLE, 2 * TABLE)


def test_a_burst_is_stepped_over_once_and_then_computed_anew() -> None:
    """Small steps say nothing of a large one, but that each row costs at least what one of a hydration does."""
    of = costs(steps={1: 0.2, 100: 0.3})
    assert not decide(of, 400_000)
    of.stepped(400_000, 40.0)
    assert decide(of, 400_000)
    assert not decide(of, 100)
    least = of.least_rows(TABLE)
    assert least is not None
    assert 100 < least <= 400_000


def test_a_burst_is_searched_for_where_its_power_of_two_begins_with_cheap_sizes() -> None:
    """The next power of two is beyond the burst."""
    of = costs(hydration=30.0, steps={60_000: 5.0, 120_000: 80.0})
    least = of.least_rows(TABLE)
    assert least is not None
    assert 60_000 < least <= 120_000


def test_a_single_row_of_a_huge_partition_may_cost_more_than_all() -> None:
    of = costs(steps={1: 25.0})
    assert decide(of, 1)
    assert of.least_rows(TABLE) == 1


def test_a_step_that_takes_no_second_is_taken() -> None:
    of = costs(hydration=0.01, steps={100: SECONDS_MIN * 0.9})
    assert not decide(of, 100)


def test_a_decision_does_not_flap() -> None:
    """Between both bounds it stays what it was."""
    of = costs(steps={1000: 10.0 * (FACTOR_TO_BEGIN - 0.1)})
    assert not decide(of, 1000)
    of = costs(steps={1000: 10.0 * (FACTOR_TO_BEGIN + 0.1)})
    assert decide(of, 1000)
    of.hydrated(TABLE, 12.0)
    estimate = of.estimate(1000, TABLE)
    assert estimate is not None
    assert 1.0 < estimate.step / estimate.hydration < FACTOR_TO_BEGIN
    assert decide(of, 1000)
    of.hydrated(TABLE, 40.0)
    assert not decide(of, 1000)
    of.hydrated(TABLE, 8.0)
    assert not decide(of, 1000)


def test_a_wrong_measurement_is_forgotten_by_a_trial() -> None:
    """Trials cost a fraction of what recomputations do, however wrong the measurement was."""
    of = costs(hydration=10.0, steps={1000: 200.0})
    anew = 0
    while decide(of, 1000):
        estimate = of.estimate(1000, TABLE)
        assert estimate is not None
        of.recomputed(estimate, TABLE, 10.0)
        anew += 1
    assert 200.0 - 10.0 <= anew * 10.0 * 0.25 <= 200.0 + 10.0
    of.stepped(1000, 0.1)
    of.stepped(1000, 0.1)
    for _ in range(8):
        of.stepped(1000, 0.1)
    assert not decide(of, 1000)


def test_a_table_that_has_grown_beyond_what_was_measured_is_not_known() -> None:
    """The estimate counts again after a hydration of its size; within bounds the cost of a row is taken to be the
    same."""
    of = costs(steps={1000: 60.0})
    assert decide(of, 1000, 2 * TABLE)
    assert not decide(of, 1000, 6 * TABLE)
    assert of.estimate(1000, int(TABLE * GROWTH_MAX) + 1) is None
    of.hydrated(20 * TABLE, 30.0)
    assert decide(of, 1000, 20 * TABLE)


def test_the_correction_of_the_table_is_part_of_a_recomputation() -> None:
    of = costs(steps={1000: 20.0})
    of.correction = 30.0
    assert not decide(of, 1000)
    of.correction = 0.0
    assert decide(of, 1000)


def test_nothing_is_computed_anew_after_a_lack_of_memory() -> None:
    of = costs(steps={1000: 200.0})
    of.is_given_up = True
    assert not decide(of, 1000)
    assert of.least_rows(TABLE) is None
