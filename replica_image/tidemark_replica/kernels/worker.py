"""Preparing a process that runs kernels: the imported modules are hidden from the garbage collector.

Spark's Python worker calls `gc.collect()` after every task, which walks all imported objects: most of a small step's
time. `gc.freeze()` takes them out of the collector's sight. That is right in a worker, which only runs kernels,
and at the start of a replica, whose objects are almost all of imported modules.

Arrow imports more (pandas, where it is installed) at its first NumPy array, so `freeze_imports` makes one beforehand.
"""

import gc
import sys

import numpy as np
import pyarrow as pa


def freeze_imports_in_spark_worker(arguments: list[str] | None = None) -> bool:
    """Call `freeze_imports` if this process is a Python worker of Spark. Return whether it is one."""
    if "pyspark.worker" not in (sys.orig_argv if arguments is None else arguments):
        return False  # Spark names the worker's module last, also for its daemon: -m DAEMON pyspark.worker
    freeze_imports()
    return True


def freeze_imports() -> None:
    """Exclude all present objects from garbage collection."""
    pa.array(np.zeros(1, np.int64))
    gc.collect()
    gc.freeze()
