"""The replica: a Spark application that hydrates dataflows once and then maintains them.

Rooms, in the order in which to read them:

    process/        one process: scratch, watchdog, threads, start and end (begin with process/replica.py)
    server/         the gRPC endpoint: frames to commands, which client is served
    events/         the queue into the command loop, the queue out of it, jobs on other threads
    command_loop/   the one thread that owns the state and carries out commands
    dataflow/       installed dataflows: rendered, stepped, reported, dropped
    peek/           reads of an index or a shard at one time
    sinks/          output that leaves a dataflow: tables, subscribes, copies
    storage/        ingestion: outside data into shards
    shards/         handles on shards, and their frontiers
    spark/          the Spark session and the pods of its executors
    telemetry/      metrics, costs and errors that the replica reports
    values/         types, literals and texts that all rooms use
    render/, arrangement/, kernels/, evaluator/   plans as operators, their state and their computation
"""

import os

# pyspark starts the JVM by a fork, and the child runs some Python before it executes java. gRPC's fork handlers would
# shut gRPC down in that child, which sometimes kills it. No process here forks and uses gRPC in the child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
