"""The time limit of waits in tests: only a test that hangs reaches it, on any machine.

Light to import, for tests that have nothing else to do with Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BOUND = 480.0


def until(holds: Callable[[], object]) -> None:
    """Asks again and again, where nothing tells when it changes."""
    began, pause = time.monotonic(), threading.Event()
    while not holds():
        assert time.monotonic() - began < BOUND, "it did not come true"
        pause.wait(0.02)
