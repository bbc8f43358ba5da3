"""Step workers: processes beside the driver that run small fragments without a Spark job, outside the driver's GIL.

    dataflows' threads          one thread per process                    python -m tidemark_replica.render.step_worker
    ticket.wait() ──> queue ──> Member ──────────────────── socket ─────> Stage(description).evaluate(tree)
          ▲                        │                                        │
          └───────── settled ──────┴──────────── Answer(report) ◄───────────┘

A member is a fragment of one dataflow's step: the tree that a Spark task would run, with the same description. Its
report comes with the answer. A process has one member at a time; each fails, is cancelled and is committed on its own.

A process that dies, or that the pool kills because a member takes too long, is replaced. The member that it ran fails
with `WorkerLost`. When the driver ends, for whatever reason, its processes end: they watch their standard input. A
process that has grown too large is replaced between two members.

Modules: `wire` (messages), `worker_members` (inside the process), `worker_process` (one process, as the driver sees
it), `work_ticket`, `pool`, `core_contention` (when to start another process).
"""
