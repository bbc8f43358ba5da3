"""The last time at which a replica has computed a dataflow's views anew, by policy auto.

    Status recomputing {time: 1732147200000, rows: 90000, input_rows: 1000000, step_ms: 40000, hydration_ms: 12000}
    Status recomputed {time: 1732147200000, rows: 90000, input_rows: 1000000, step_ms: 40000, hydration_ms: 12000,
                       elapsed_ms: 11500, recomputations: 3}
    Status recomputations_given_up {time: 1732147200000}     that one ran out of memory; its process begins no other one

They are shown and nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_operator.resources.conditions.frontier import date

KIND, BEGUN, GIVEN_UP = "recomputed", "recomputing", "recomputations_given_up"
ESTIMATES = ("time", "rows", "input_rows", "step_ms", "hydration_ms")
FIELDS = (*ESTIMATES, "elapsed_ms", "recomputations")


@dataclass(frozen=True)
class Recomputation:
    """`rows`: updates of the step that was not taken, `step_ms` its estimate; `hydration_ms`: the estimate of a
    hydration over `input_rows`; `elapsed_ms`: how long it took. `recomputations`: since the replica began."""

    time: int
    rows: int
    input_rows: int
    step_ms: int
    hydration_ms: int
    elapsed_ms: int
    recomputations: int

    def __str__(self) -> str:
        """The time, reason and duration, as a sentence without its subject."""
        why = _format_estimates(self.rows, self.input_rows, self.step_ms, self.hydration_ms)
        return f"computed anew at {date(self.time)} in {self.elapsed_ms / 1e3:,.1f} s: {why}"


def recomputation(fields: Mapping[str, str]) -> Recomputation | None:
    """None: nothing was computed anew, or an image has another format."""
    try:
        return Recomputation(*(int(fields[field]) for field in FIELDS))
    except (KeyError, ValueError):
        return None


def recomputing(begun: Mapping[str, str], last: Recomputation | None) -> str:
    """The recomputation on a replica and its reason, as a sentence without its subject; empty: none. `begun`: the
    fields of the Status `recomputing`. `last`: the last recomputation that has ended."""
    try:
        time, *sizes = (int(begun[field]) for field in ESTIMATES)
    except (KeyError, ValueError):
        return ""
    if last is not None and last.time >= time:
        return ""
    return f"computes it anew at {date(time)}: {_format_estimates(*sizes)}"


def _format_estimates(rows: int, input_rows: int, step_ms: int, hydration_ms: int) -> str:
    """The estimates of a step and of a hydration, as text."""
    return (
        f"a step over about {rows:,} updates was estimated at {step_ms / 1e3:,.1f} s, a hydration of about "
        f"{input_rows:,} rows at {hydration_ms / 1e3:,.1f} s"
    )


def given_up(fields: Mapping[str, str]) -> str:
    """The reason why the replica computes nothing anew any more, as a sentence without its subject; empty: it does."""
    time = fields.get("time", "")
    if not time.isdecimal():
        return ""
    return f"not computed anew any more until it restarts: at {date(int(time))} that ran out of memory"
