"""Step workers: processes beside the driver that run small fragments without a Spark job, outside the driver's GIL.

    dataflows' threads          one thread per process                    python -m tidemark_replica.render.step_worker
    ticket.wait() ──> queue ──> Order(members ...) ──────── socket ─────> Stage(description).evaluate(tree)
          ▲                        │                                        │
          └───────── settled ──────┴──── one Answer(report) per member ◄────┘

A member is a fragment of one dataflow's step: the tree that a Spark task would run, with the same description. Its
report comes with the answer. Members of an order are independent: each fails, is cancelled and is committed on its own.

A process that dies, or that the pool kills because one member takes too long, is replaced. The member that it ran fails
with `WorkerLost`; the members behind it are sent again. When the driver ends, for whatever reason, its processes end:
they watch their standard input. A process that has grown too large is replaced between two orders.

Modules: `wire` (messages), `worker_members` (inside the process), `worker_process` (one process, as the driver sees
it), `work_ticket`, `pool`, `core_contention` (when to start another process).
"""
