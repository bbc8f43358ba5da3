"""How processes that compute with NumPy and Arrow keep memory, by their environment.

By default the C library gives what is free at the end of its heap back to the system, array by array: the next array
of some megabytes is then mapped, and cleared, page by page. Hashing rows took four times as long for it. So up to
`kept` bytes stay, and arrays of less than 32 MiB (the most that can be asked for) come from what stays. Arrow's own
allocator gives back what has been free for 10 ms, in huge pages, which are then cleared anew, and keeps apart what
NumPy could use: so Arrow asks the C library too.
"""

from __future__ import annotations

MIB = 1024**2
TASKS_KEEP = 256 * MIB
"""In Spark's Python workers, which Spark ends when they have had nothing to do for a minute."""
STEPS_KEEP = 32 * MIB
"""In step workers, whose arrays are small."""


def allocation(kept: int) -> dict[str, str]:
    """The environment; the C library's part means nothing to others than GNU's."""
    return {
        "MALLOC_TRIM_THRESHOLD_": str(kept),
        "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
