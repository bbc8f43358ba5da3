"""Waiting for what is to become true, and a step on a thread of its own, to be cut short while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tidemark_replica.render import RenderedDataflow, Step

BOUND = 240.0  # generous: machines may be busy


def until(holds: Callable[[], object]) -> None:
    """Asks again and again, where nothing tells when it changes."""
    began, pause = time.monotonic(), threading.Event()
    while not holds():
        assert time.monotonic() - began < BOUND, "it did not come true"
        pause.wait(0.02)


class Attempt:
    """A step of the dataflow that runs beside the test."""

    def __init__(self, dataflow: RenderedDataflow, step: Step) -> None:
        self._dataflow, self._step = dataflow, step
        self._raised: type[BaseException] | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def how_it_ended(self) -> type[BaseException] | None:
        """What it raised; None: it succeeded."""
        self._thread.join(BOUND)
        assert self.is_over, "the step goes on"
        return self._raised

    def cancelled(self) -> type[BaseException] | None:
        """How it ends when its dataflow is cancelled now."""
        self._dataflow.cancel()
        return self.how_it_ended()

    def _run(self) -> None:
        try:
            self._dataflow.run(self._step)
        except BaseException as error:
            self._raised = type(error)
