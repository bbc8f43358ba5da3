"""A replacement of `pyspark.daemon` that limits the memory of each Python worker.

The limit is the operating system's, on what is no mapped file (RLIMIT_DATA), for each worker apart; the JVM has none.
The amount that is worked on at a time is a small part of what it is elsewhere, so that a state need not be huge to be
far larger.
"""

from __future__ import annotations

import os
import resource

from pyspark.daemon import manager

from tidemark_replica.arrangement.rows import updates
from tidemark_replica.arrangement.spines import spine

MEGABYTES = "TIDEMARK_TEST_WORKER_MEGABYTES"
PART = 32
"""At an eighth, a worker takes 850 MB."""

if __name__ == "__main__":
    updates.CHUNK_BYTES //= PART
    spine.SEGMENT_BYTES //= PART
    most = int(os.environ[MEGABYTES]) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    manager()
