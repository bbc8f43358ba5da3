"""The time that a test on a node waits: images are unpacked and JVMs start, on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 900.0
POLL_SECONDS = 0.25
T = TypeVar("T")


def wait_for(what: str, condition: Callable[[], T], explain: Callable[[], str] = str) -> T:
    """The value of the condition once it is true; fails with the last one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come to pass; {explain()}"
        time.sleep(POLL_SECONDS)
    return found
