"""The one thing a kernel does to the process it runs in.

Spark's Python worker calls `gc.collect()` after every task, which walks all that was ever imported: most of a small
step's time. Freezing the imported world takes it out of the collector's sight. That is right in a worker, which does
nothing but run kernels; elsewhere it would be rude.

Arrow imports more (pandas, where it is installed) when it first meets a NumPy array: that is provoked beforehand.
"""

import gc
import sys

import numpy as np
import pyarrow as pa


def freeze_imports_in_spark_worker(arguments: list[str] | None = None) -> bool:
    """Freeze what is imported by now, if this process is one of Spark's Python workers; says whether it was."""
    started_as = " ".join(sys.orig_argv if arguments is None else arguments)
    if "pyspark.daemon" not in started_as and "pyspark.worker" not in started_as:
        return False
    freeze_imports()
    return True


def freeze_imports() -> None:
    """What has been imported by now stays, and is not looked at again."""
    pa.array(np.zeros(1, np.int64))
    gc.collect()
    gc.freeze()
