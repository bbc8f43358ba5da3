"""The most of a quantity while something runs, by samples in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def sampled_peak(quantity: Callable[[], float], seconds: float) -> Iterator[list[float]]:
    """The most that `quantity` returns during the block, asked every so many seconds: the only item of the list, at
    least 0."""
    peak, ended = [0.0], Event()

    def sample() -> None:
        while not ended.wait(seconds):
            peak[0] = max(peak[0], quantity())

    thread = Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
