"""Objects that live as long as their process, hidden from Python's garbage collector.

A full collection walks every object. The imported modules of an operator, a replica or a `tidemark-pgwire` are 100,000
objects or more, and walking them stops all threads for 40 to 70 ms, several times a minute: every answer waits for it.
"""

import gc


def freeze_imported() -> None:
    """Exclude the objects that there are now from garbage collection. Call it at the start of a process, once its
    modules are imported: cycles among these objects are never freed."""
    gc.collect()
    gc.freeze()
