"""The costs of steps and hydrations of one dataflow on this replica, and whether the next step costs more than
computing its views anew (`refreshPolicy: auto`).

    steps        of 100 rows: 0.2 s    of 90,000 rows: 40 s       by size: each size has an average of its own
    hydrations   of 1,000,000 rows: 12 s                          by row, with the correction of the tables
    a step of 80,000 rows: 36 s  >  FACTOR_TO_BEGIN x 12 s        anew

An estimate is never above what was measured near it: between two sizes it lies between them, below the smallest it
falls to nothing, and above the greatest each further row costs what a row of a hydration does. So nothing is computed
anew before a step of about that size, and a hydration of about these inputs, have been measured.

Hysteresis: a size that is computed anew goes on being so while a step would cost any more. The steps that are saved are
not measured, so one of them is taken all the same, once the time that recomputations took pays for it (TRIAL_SHARE).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SECONDS_MIN = 1.0
"""A step that takes less is taken: it is not worth a recomputation."""
FACTOR_TO_BEGIN = 1.5
"""A step must cost so many times a hydration before its size is computed anew."""
GROWTH_MAX = 8.0
"""A hydration says nothing of one with more than so many times its rows."""
TRIAL_SHARE = 0.25
"""The seconds that steps which measure again may cost beyond a hydration, per second of recomputations."""
WEIGHT = 0.5
"""The weight of the newest measurement in an average."""
COLD_SHARE = 0.2
"""The first hydration of a process loads code and fills caches: this share of it counts, until there is another ..."""
COLD_SECONDS = 20.0
"""... but so much of it at most is left out: loading does not grow with the rows."""
SIZES_MAX = 48
"""Steps are measured up to 2^48 rows."""
_SEARCHED = tuple(sorted({int(2 ** (quarter / 4)) for quarter in range(4 * SIZES_MAX)}))
"""Sizes at which `least_rows` looks: four for each power of two."""


@dataclass(frozen=True)
class Estimate:
    """The estimated costs of one step, in seconds: `step` incrementally, `hydration` anew. `rows`: updates of the step;
    `input_rows`: rows that a hydration reads."""

    rows: int
    input_rows: int
    step: float
    hydration: float


class _Average(NamedTuple):
    """The averages of measurements: rows, and seconds."""

    rows: float
    seconds: float

    def with_measured(self, rows: float, seconds: float) -> _Average:
        old, new = 1 - WEIGHT, WEIGHT
        return _Average(old * self.rows + new * rows, old * self.seconds + new * seconds)


class StepCosts:
    """The costs of one dataflow, by sizes of steps: size n has 2^n to 2^(n+1) updates."""

    def __init__(self) -> None:
        self._steps: dict[int, _Average] = {}
        self._hydration: _Average | None = None
        self._is_cold = False
        """Whether that is the process's first one alone."""
        self._anew = set[int]()
        """Sizes that are computed anew."""
        self._earned: dict[int, float] = {}
        """Seconds that recomputations have earned for a trial, by size."""
        self.correction = 0.0
        """Seconds that the last correction of a table took."""
        self.is_given_up = False
        """Whether a recomputation ran out of memory in this process."""

    def stepped(self, rows: int, seconds: float) -> None:
        """Learns from a step of at most `rows` updates."""
        size = _size(rows)
        known = self._steps.get(size)
        self._steps[size] = _Average(rows, seconds) if known is None else known.with_measured(rows, seconds)

    def hydrated(self, input_rows: int, seconds: float) -> None:
        """Learns from a hydration."""
        rows, known = max(input_rows, 1), self._hydration
        is_new = known is None or self._is_cold or not self._is_like(rows)
        self._hydration = _Average(rows, seconds) if known is None or is_new else known.with_measured(rows, seconds)
        self._is_cold = known is None

    def recomputed(self, instead: Estimate, input_rows: int, seconds: float) -> None:
        """Learns from a recomputation in the place of a step."""
        self.hydrated(input_rows, seconds)
        size = _size(instead.rows)
        self._earned[size] = self._earned.get(size, 0.0) + TRIAL_SHARE * seconds

    def estimate(self, rows: int, input_rows: int) -> Estimate | None:
        """The costs of a step and of a hydration; None where too little was measured."""
        if not self._steps or self._hydration is None or not self._is_like(input_rows):
            return None
        known, whole = sorted(self._steps.values()), self._hydration
        if self._is_cold:
            whole = _Average(whole.rows, max(whole.seconds * COLD_SHARE, whole.seconds - COLD_SECONDS))
        step = float(np.interp(rows, [0.0, *(each.rows for each in known)], [0.0, *(each.seconds for each in known)]))
        step += max(rows - known[-1].rows, 0) * whole.seconds / whole.rows
        hydration = whole.seconds * max(input_rows / whole.rows, 1 / GROWTH_MAX)
        return Estimate(rows, input_rows, step, hydration + self.correction)

    def is_dearer(self, estimate: Estimate | None) -> bool:
        """Whether the step costs so much more than a hydration that the views should be computed anew."""
        if estimate is None or self.is_given_up or estimate.step < SECONDS_MIN:
            return False
        factor = 1.0 if _size(estimate.rows) in self._anew else FACTOR_TO_BEGIN
        return estimate.step > factor * estimate.hydration

    def decide(self, estimate: Estimate) -> bool:
        """Like `is_dearer`, for a step that is to be taken now. False also for a trial."""
        size, is_dearer = _size(estimate.rows), self.is_dearer(estimate)
        if is_dearer and size in self._anew and self._earned.get(size, 0.0) >= estimate.step - estimate.hydration:
            self._earned[size] = 0.0
            return False
        self._anew = self._anew | {size} if is_dearer else self._anew - {size}
        return is_dearer

    def least_rows(self, input_rows: int) -> int | None:
        """About the smallest step that costs more than a hydration; None: none does, as far as is known."""
        return next((rows for rows in _SEARCHED if self.is_dearer(self.estimate(rows, input_rows))), None)

    def _is_like(self, input_rows: int) -> bool:
        return self._hydration is not None and input_rows <= GROWTH_MAX * self._hydration.rows


def _size(rows: int) -> int:
    return min(max(rows, 1).bit_length() - 1, SIZES_MAX - 1)
