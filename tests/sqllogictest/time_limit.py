"""A time limit for a dataflow: beyond it the dataflow is cancelled and named."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 120.0


class StatementTimedOut(Exception):
    """It did not end within its bound."""


@contextmanager
def bounded(seconds: float, cancel: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` once the time is over; what then raises is said to have taken too long."""
    over = threading.Event()

    def end() -> None:
        over.set()
        cancel()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise StatementTimedOut(f"it takes longer than {seconds:g} s") from error
        raise
    finally:
        timer.cancel()
