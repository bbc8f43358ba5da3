"""The last time at which a replica has computed a dataflow's views anew, by policy auto.

    Status recomputed {time: 1732147200000, rows: 90000, input_rows: 1000000, step_ms: 40000, hydration_ms: 12000,
                       elapsed_ms: 11500, recomputations: 3}
    Status recomputations_given_up {time: 1732147200000}     that one ran out of memory; its process begins no other one

They are shown and nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_operator.resources.conditions.frontier import date

KIND, GIVEN_UP = "recomputed", "recomputations_given_up"
FIELDS = ("time", "rows", "input_rows", "step_ms", "hydration_ms", "elapsed_ms", "recomputations")


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
        """When, why and how long, as a sentence without its subject."""
        return (
            f"computed anew at {date(self.time)} in {self.elapsed_ms / 1e3:,.1f} s: a step over about {self.rows:,} "
            f"updates was estimated at {self.step_ms / 1e3:,.1f} s, a hydration of about {self.input_rows:,} rows at "
            f"{self.hydration_ms / 1e3:,.1f} s"
        )


def recomputation(fields: Mapping[str, str]) -> Recomputation | None:
    """None: nothing was computed anew, or an image has another format."""
    try:
        return Recomputation(*(int(fields[field]) for field in FIELDS))
    except (KeyError, ValueError):
        return None


def given_up(fields: Mapping[str, str]) -> str:
    """Why the replica computes nothing anew any more, as a sentence without its subject; empty: it does."""
    time = fields.get("time", "")
    if not time.isdecimal():
        return ""
    return f"not computed anew any more until it restarts: at {date(int(time))} that ran out of memory"
