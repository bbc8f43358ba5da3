"""Everything that the gateway bounds, each as one FairQueue.

    queue        units                             all       per caller   when full
    calls        calls, and queries of streams     256       half         refused
    streams      streams of queries                64        half         refused
    waits        statements without a replica      64        half         refused
    definitions  statements that wait for a view   64        half         refused
    planner      statements at the planner         2         1            64 wait, half per caller
    peeks        bytes of answers of peeks         128 MiB   half         calls wait
    one_shots    bytes of answers of operators     16 MiB    half         calls wait
    subscribes   subscribes that run               16        half         refused
    copies       copies that run                   4         half         refused
    texts        answers that do not fit a message,    4         half         CALLS wait, half per caller
                 over HTTP: made text batch by batch
    writes       calls that write rows             64        half         64 wait, half per caller

How often a caller writes is bounded besides (write_rate.py).

A query with operators may take long, so its answer's memory is apart from that of peeks: it never delays a lookup. A
statement that waits for a restarting replica holds a call and one of `waits` and nothing else: statements on other
instances run meanwhile, and most calls stay free for them.
"""

from __future__ import annotations

from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.admission.write_rate import WriteRate

CALLS, STREAMS, WAITS, SUBSCRIBES, COPIES, WRITES, TEXTS = 256, 64, 64, 16, 4, 64, 4
PLANNING, PLANNER_WAITING = 2, 64
PEEKS_BYTES = 128 * 1024 * 1024
ONE_SHOTS_BYTES = 16 * 1024 * 1024
_READ_ANSWERS = "read or cancel other queries first, or ask for less (LIMIT)"


def planner_queue() -> FairQueue:
    """One statement of each caller at the planner: a slow one delays its own caller alone."""
    return FairQueue(
        "statements to plan",
        PLANNING,
        "wait until one of them is planned",
        share=1,
        waiting=PLANNER_WAITING,
    )


class GatewayLimits:
    """The queues of one gateway."""

    def __init__(self) -> None:
        self.planner = PlannerAdmission(planner_queue())
        self.calls = FairQueue("calls", CALLS, "wait until one of them ends")
        self.streams = FairQueue("streams of queries", STREAMS, "use those that are open")
        self.waits = FairQueue("statements that wait for a replica", WAITS, "try again once the replica answers")
        self.definitions = FairQueue(
            "statements that wait for a definition", WAITS, "wait until one ends, or SET tidemark.wait = off"
        )
        self.peeks = FairQueue("queries", PEEKS_BYTES, _READ_ANSWERS, waiting=CALLS)
        self.one_shots = FairQueue("queries with operators", ONE_SHOTS_BYTES, _READ_ANSWERS, waiting=CALLS)
        self.subscribes = FairQueue("subscribes", SUBSCRIBES, "end one first")
        self.copies = FairQueue("copies", COPIES, "try again when one has ended")
        self.texts = FairQueue("large answers over HTTP", TEXTS, _READ_ANSWERS, waiting=CALLS)
        self.writes = FairQueue("calls that write rows", WRITES, "repeat the call later", waiting=WRITES)
        self.write_rate = WriteRate()
