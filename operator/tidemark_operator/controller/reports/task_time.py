"""The number of cores that the tasks of a dataflow keep busy on a replica, from the replica's reports of its costs.

    report at 10 s: 4,000 ms of tasks   ─┐
    report at 20 s: 9,000 ms of tasks   ─┴► 5,000 ms in 10 s: 0.5 cores

A replica reports every ten seconds at most, and only what has changed: where a second report does not come, nothing
ran. It is shown and nothing else depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

IDLE_MS = 25_000
"""Two reports should have come by then."""


@dataclass(frozen=True)
class TaskTime:
    """The last report: `total_ms` of all tasks since the dataflow was rendered, reported at `at_ms`. `cores`: from the
    report before to this one; None where there was none."""

    at_ms: int
    total_ms: int
    cores: float | None = None

    def after(self, total_ms: int, now_ms: int) -> TaskTime:
        """The next report. A smaller total is of a dataflow that was rendered anew."""
        if total_ms < self.total_ms or now_ms <= self.at_ms:
            return TaskTime(now_ms, total_ms)
        return TaskTime(now_ms, total_ms, (total_ms - self.total_ms) / (now_ms - self.at_ms))

    def cores_at(self, now_ms: int) -> float | None:
        """None: not known yet."""
        return 0.0 if now_ms - self.at_ms > IDLE_MS else self.cores
