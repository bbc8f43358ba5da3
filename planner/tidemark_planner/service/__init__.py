"""The planner's gRPC service and its worker processes.

    server ──► worker_pool ──► worker_process ══ socket (worker_protocol) ══ worker, with its JVM

Reading order: `server` (one call), `worker_pool` (which worker plans it), `worker_process` (a worker as its parent sees
it), `worker_protocol` (the messages between both), `worker` (the worker itself).
"""
