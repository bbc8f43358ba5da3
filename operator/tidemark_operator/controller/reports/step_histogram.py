"""The durations of a dataflow's steps on a replica: steps by buckets, whose bounds are powers of two milliseconds.

    Status steps {..., histogram: [[1, 40], [16, 3]]}      40 steps of up to 1 ms, 3 of more than 8 and up to 16 ms

It is shown and nothing else depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping


def step_histogram(fields: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Bounds in milliseconds and numbers of steps in the fields of a status; empty for an image with another format."""
    try:
        return tuple((int(bound), int(steps)) for bound, steps in json.loads(fields.get("histogram", "[]")))
    except (TypeError, ValueError):
        return ()
