"""Something that is done when the last of several is ready for it."""

from __future__ import annotations

from collections.abc import Callable


def join_callback(count: int, done: Callable[[], None]) -> Callable[[], None]:
    """What does `done` when it has been called `count` times; at once for 0."""
    left = count

    def one_less() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            done()

    if count == 0:
        done()
    return one_less
