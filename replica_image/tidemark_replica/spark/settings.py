"""What every Spark session of ours is told."""

from __future__ import annotations

# Each as measured: a step is many small jobs, so start-up costs of code and of plans count, and peak throughput less.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # ${env:...} in a literal is text: Spark would put in what this process knows, secrets among it.
    "spark.sql.variable.substitute": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    # One that crashes says so, and where; of one that says nothing we take it that it was killed for its memory
    # (execution/spark_runner.py, which tells it of its own jobs).
    "spark.python.worker.faulthandler.enabled": "true",
    # A step goes to its home if there is room, and else anywhere at once: what it finds open there is worth less than a
    # wait, which would end with the next of Spark's looks, one a second (execution/executor_affinity.py,
    # docs/performance.md).
    "spark.locality.wait": "0",
    # What follows keeps failing expressions failing where they stand, and nowhere else (docs/rendering.md).
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
"""Nobody else tells these."""
