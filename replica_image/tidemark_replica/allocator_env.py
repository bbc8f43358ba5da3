"""Environment variables for the memory allocators of processes that compute with NumPy and Arrow.

By default glibc returns free memory at the end of its heap to the system after each array. The next array of some
megabytes is then mapped and cleared page by page, which made the hashing of rows four times slower. These settings keep
up to `kept` bytes in the process, and serve arrays below 32 MiB (glibc's upper limit for this threshold) from them.
Arrow uses the same allocator: its own one returns free memory after 10 ms and does not share it with NumPy.
"""

from __future__ import annotations

MIB = 1024**2
TASK_KEPT_BYTES = 256 * MIB
"""Bytes kept by each of Spark's Python workers. Spark ends a worker that was idle for a minute."""
STEP_KEPT_BYTES = 32 * MIB
"""Bytes kept by each step worker. Its arrays are small."""


def allocator_env(kept: int) -> dict[str, str]:
    """The variables that keep up to `kept` bytes. Only glibc reads the `MALLOC_` ones."""
    return {
        "MALLOC_TRIM_THRESHOLD_": str(kept),
        "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
