"""The bound of the updates that one step of a dataflow may read.

    behind by 3.6 million    [1,000,000][1,000,000] ...           a step takes at most about STEP_SECONDS
    out of memory            500,000  250,000  125,000 ...        as far as one time

Memory follows the rows of a step, so there is a bound that no step passes. Below it a step is as wide as it can be in
some seconds, so that the frontier moves visibly: operators that multiply rows get narrower steps.
"""

from __future__ import annotations

STEP_SECONDS = 30.0
"""The time that a step of a dataflow that is behind should take."""
CUT_STEPS = 8
"""The ceiling that a lack of memory left is doubled after so many cut steps without one: it may have been another
dataflow's."""
FACTOR = 2.0
"""The bound of one step is at most so many times that of the step before, and at least its inverse."""


class StepBound:
    """The bound of one dataflow's next step. `rows_max`: of any step; None: there is no bound."""

    def __init__(self, rows_max: int | None) -> None:
        self._rows_max, self._ceiling, self._rows = rows_max, rows_max, rows_max
        self._cut_steps = 0

    @property
    def rows(self) -> int | None:
        """The largest number of updates of the next step, unless one time has more; None: any number."""
        return self._rows

    def was_cut(self, seconds: float) -> None:
        """Learns from a step that was cut at the bound and ran for `seconds`."""
        self._cut_steps += 1
        if self._ceiling is not None and self._cut_steps % CUT_STEPS == 0:
            self._ceiling = min(2 * self._ceiling, self._rows_max or 2 * self._ceiling)
        if self._rows is not None and self._ceiling is not None:
            factor = min(max(STEP_SECONDS / max(seconds, 1e-3), 1 / FACTOR), FACTOR)
            self._rows = min(max(int(self._rows * factor), 1), self._ceiling)

    def has_caught_up(self) -> None:
        """Ends what an earlier lack of memory forbids: it may have been another dataflow's."""
        self._ceiling = self._rows_max
        self._rows = self._rows_max if self._rows_max is None else self._rows

    def ran_out_of_memory(self, rows: int) -> None:
        """Learns from a step of about `rows` updates that took too much memory: no step has more than half of them,
        until CUT_STEPS steps did not, or the dataflow has caught up."""
        self._rows = self._ceiling = max(min(rows, self._rows or rows) // 2, 1)
        self._cut_steps = 0
