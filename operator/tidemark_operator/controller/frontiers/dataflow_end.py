"""The time at which a dataflow ends, if its inputs do not end before.

until 50                      50     nothing is produced from there on
a subscribe up to 40          40
refreshed at 10 and 30        30     the last refresh; a schedule with `every` has no last one
"""

from __future__ import annotations

from tidemark_operator.controller.frontiers.read_policy import is_vouched
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, SubscribeSink


def end_of(description: DataflowDescription) -> Time | None:
    """The time before which the dataflow cannot end, if its inputs do not; None where it has no end of its own. All
    views of a dataflow are refreshed at the same times."""
    ends = [description.until]
    for sink in (export.sink for export in description.sink_exports):
        if isinstance(sink, SubscribeSink):
            ends.append(sink.up_to)
        elif isinstance(sink, MaterializedViewSink) and sink.refresh is not None and sink.refresh.every_ms is None:
            ends.append(sink.refresh.at[-1])
    return min((time for time in ends if time is not None), default=None)


def has_passed(end: Time | None, now_ms: int) -> bool:
    """Whether the clock has reached the end, within its bound; False where there is none."""
    return end is not None and is_vouched(Frontier.at(end), now_ms)
