"""Processes beside the driver that run small fragments: no Spark job, and nothing of it under the driver's GIL.

    dataflows' threads          one thread per process                    python -m tidemark_replica.render.step_worker
    ticket.wait() ──> queue ──> Order(members ...) ──────── socket ─────> Stage(description).evaluate(tree)
          ▲                        │                                        │
          └───────── settled ──────┴──── one Answer(report) per member ◄────┘

A member is a fragment of one dataflow's step: the tree that a Spark task would run, the same description, the same
report, which comes with the answer. Members of an order know nothing of each other: each fails, is cancelled and is
committed on its own.

A process that dies, or that goes on with one member for too long and is killed, is replaced; the member it was at is
told so (`WorkerLost`), those behind it are sent again. When the driver dies, however it does, its processes end: they
watch their standard input. One that has grown is replaced between two orders.

`wire` (messages), `members` (the process), `process` (one of them, as the driver sees it), `tickets`, `pool`,
`crowding` (when another process is worth its start).
"""
