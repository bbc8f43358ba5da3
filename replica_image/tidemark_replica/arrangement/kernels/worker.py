"""The one thing a kernel does to the process it runs in.

Spark's Python worker calls `gc.collect()` after every task, which walks all that was ever imported: most of a small
step's time. Freezing the imported world takes it out of the collector's sight. That is right in a worker, which does
nothing but run kernels; elsewhere it would be rude.
"""

import gc
import sys


def freeze_in_spark_worker(arguments: list[str] | None = None) -> bool:
    """Freeze what is imported by now, if this process is one of Spark's Python workers; says whether it was."""
    started_as = " ".join(sys.orig_argv if arguments is None else arguments)
    if "pyspark.daemon" not in started_as and "pyspark.worker" not in started_as:
        return False
    gc.collect()
    gc.freeze()
    return True
