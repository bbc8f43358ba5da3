"""A step on a thread of its own, to be cut short while it runs."""

from __future__ import annotations

import threading

from tests.waiting import BOUND, until
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.stepped_dataflow import Step

__all__ = ["BOUND", "Attempt", "until"]


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
        """The error that it raised; None: it succeeded."""
        self._thread.join(BOUND)
        assert self.is_over, "the step goes on"
        return self._raised

    def cancelled(self) -> type[BaseException] | None:
        """The end of the job when its dataflow is cancelled now."""
        self._dataflow.cancel()
        return self.how_it_ended()

    def _run(self) -> None:
        try:
            self._dataflow.run(self._step)
        except BaseException as error:
            self._raised = type(error)
