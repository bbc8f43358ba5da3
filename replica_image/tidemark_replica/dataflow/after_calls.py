"""A function that acts when it has been called often enough."""

from __future__ import annotations

from collections.abc import Callable


def after_calls(count: int, done: Callable[[], None]) -> Callable[[], None]:
    """A function whose `count`-th call calls `done`; for a count of 0 `done` is called at once."""
    left = count

    def call() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            done()

    if count == 0:
        done()
    return call
