"""Reports the costs and the state of a dataflow, for introspection only.

    Status steps           number, total time, longest, and the hydration's time, in milliseconds; histogram
                           [[bound, number], ...] of steps by powers of two milliseconds
    Status arrangements    number, rows, batches and bytes
    Status operators       [name, kind, rows, batches, bytes, milliseconds] of each; see OPERATORS_MAX; channels
                           [[from, to], ...] by places in this list; nodes [[object, number], ...] of each in the plan,
                           by places (null: none)

The status is sent for the dataflow's first export, at most every REPORT_SECONDS, and only where it has changed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.render.telemetry.operator_costs import OperatorCost

REPORT_SECONDS = 10.0
OPERATORS_MAX = 64
"""The operators that are listed, at most: those with the most time; the others are one entry."""
NAME_LENGTH_MAX = 128
BUCKETS = 22
"""The buckets of durations: up to 1 ms, 2 ms, ... 17 minutes, and everything beyond."""


class CostStatus:
    """The costs of one dataflow. All methods run on the command loop."""

    def __init__(
        self, id: GlobalId, respond: Callable[[Response], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._id, self._respond, self._clock = id, respond, clock
        self._steps, self._seconds, self._longest, self._first = 0, 0.0, 0.0, 0.0
        self._buckets = [0] * BUCKETS
        self._reported_at = -REPORT_SECONDS

    def step(self, seconds: float) -> None:
        """Counts a committed step that took `seconds`."""
        if not self._steps:
            self._first = seconds
        self._steps += 1
        self._seconds += seconds
        self._longest = max(self._longest, seconds)
        self._buckets[bucket_of(seconds)] += 1

    def report(
        self,
        keeps: Callable[[], Iterable[Manifest]],
        operators: Callable[[], Sequence[OperatorCost]] = tuple,
        channels: Callable[[], Collection[tuple[int, int]]] = tuple,
    ) -> None:
        """Sends the statuses if REPORT_SECONDS have passed."""
        now = self._clock()
        if self._steps and now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            seconds = {"elapsed_ms": self._seconds, "max_ms": self._longest, "hydration_ms": self._first}
            numbers = _numbers({"steps": self._steps} | {of: each * 1e3 for of, each in seconds.items()})
            histogram = [[1 << bucket, steps] for bucket, steps in enumerate(self._buckets) if steps]
            self._send("steps", numbers | {"histogram": json.dumps(histogram)})
            self._send("arrangements", _numbers(arrangement_sizes(keeps())))
            costs = operators()
            told = {"operators": operators_json(costs), "channels": channels_json(channels(), len(costs))}
            self._send("operators", told | {"nodes": nodes_json(costs)})

    def state_freed(self) -> None:
        """Sends at once that the dataflow keeps no state."""
        self._send("arrangements", _numbers(arrangement_sizes(())))
        self._send("operators", {"operators": operators_json(())})

    def _send(self, kind: str, fields: dict[str, str]) -> None:
        self._respond(Status(self._id, kind, fields))


def bucket_of(seconds: float) -> int:
    """The first bucket whose bound, 1, 2, 4, ... milliseconds, is not below; the last one has no bound."""
    return min(max(math.ceil(seconds * 1e3) - 1, 0).bit_length(), BUCKETS - 1)


def arrangement_sizes(manifests: Iterable[Manifest]) -> dict[str, float]:
    """The number, rows, batches and bytes of arrangements together."""
    kept = list(manifests)
    batches = [batch for manifest in kept for batch in manifest.batches]
    return {
        "arrangements": len(kept),
        "records": sum(batch.rows for batch in batches),
        "batches": len(batches),
        "bytes": sum(batch.bytes for batch in batches),
    }


def operators_json(operators: Sequence[OperatorCost]) -> str:
    """The operators in their order, as JSON; beyond OPERATORS_MAX the cheapest are the last entry."""
    shown, others = _shown(operators)
    rows = [[o.name[:NAME_LENGTH_MAX], o.kind, *_measured([o])] for o in shown]
    if others:
        rows.append([f"{len(others)} others", "", *_measured(others)])
    return json.dumps(rows)


def nodes_json(operators: Sequence[OperatorCost]) -> str:
    """The nodes of what `operators_json` lists, as JSON."""
    shown, others = _shown(operators)
    return json.dumps([*(o.node for o in shown), *([None] if others else [])])


def _shown(operators: Sequence[OperatorCost]) -> tuple[Sequence[OperatorCost], Sequence[OperatorCost]]:
    """The operators that are listed, in their order, and the others."""
    if len(operators) <= OPERATORS_MAX:
        return operators, ()
    longest = sorted(range(len(operators)), key=lambda at: -operators[at].microseconds)[: OPERATORS_MAX - 1]
    return [operators[at] for at in sorted(longest)], [o for at, o in enumerate(operators) if at not in set(longest)]


def channels_json(channels: Collection[tuple[int, int]], operators: int) -> str:
    """The channels in order, as JSON; none where not each operator is listed."""
    return json.dumps(sorted(channels) if operators <= OPERATORS_MAX else [])


def _measured(operators: Sequence[OperatorCost]) -> list[int]:
    measures = ([o.records, o.batches, o.bytes, o.microseconds] for o in operators)
    *kept, microseconds = map(sum, zip(*measures, strict=True))
    return [*kept, microseconds // 1000]


def _numbers(numbers: Mapping[str, float]) -> dict[str, str]:
    return {name: str(int(number)) for name, number in numbers.items()}
