"""Threads of tests that read what other processes write."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager


class ReaderThread(ABC):
    """A reader that runs in a thread of its own. `failures`: the error that ended it, if there is one. `end`: set when
    it is to end."""

    def __init__(self, name: str) -> None:
        self.failures: list[BaseException] = []
        self.end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """The reader runs meanwhile."""
        self._thread.start()
        try:
            yield
        finally:
            self.end.set()
            self._thread.join()

    @abstractmethod
    def read_until_the_end(self) -> None:
        """Reads until `end` is set."""

    def _run(self) -> None:
        try:
            self.read_until_the_end()
        except BaseException as error:
            self.failures.append(error)
