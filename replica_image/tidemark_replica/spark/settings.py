"""Settings of every Spark session of a replica."""

from __future__ import annotations

# Chosen by measurements: a step is many small jobs, so the start-up costs of code and plans matter most.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    # Sources read large files in pieces, so that a task of another source or step waits for one piece alone
    # (storage/ingestion_threads.py); small files are packed into one piece, since each piece is a data file.
    "spark.sql.files.maxPartitionBytes": "4m",
    "spark.sql.files.openCostInBytes": "32k",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # ${env:...} in a literal stays text: Spark would substitute environment variables, secrets among them.
    "spark.sql.variable.substitute": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    # Python workers end with the daemon that forked them.
    "spark.python.daemon.module": "tidemark_replica.spark.python_daemon",
    # A worker that crashes prints its stack. One that dies without output was probably killed for its memory
    # (execution/spark_runner.py).
    "spark.python.worker.faulthandler.enabled": "true",
    # A step runs on its preferred executor if that has a free core, and else on any at once: open files there save less
    # than a wait for Spark's next scheduling round, one a second (execution/executor_affinity.py, docs/performance.md).
    "spark.locality.wait": "0",
    # The following settings keep each error at the expression that raises it (docs/rendering.md).
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in ("ConstantFolding", "PushDownPredicates")
    ),
}
RESERVED_SETTINGS = SETTINGS.keys() | {
    "spark.master",
    "spark.driver.memory",
    "spark.driver.extraJavaOptions",
    "spark.local.dir",
    "spark.sql.warehouse.dir",
    "spark.python.unix.domain.socket.dir",
}
"""Settings that only the replica itself sets."""
