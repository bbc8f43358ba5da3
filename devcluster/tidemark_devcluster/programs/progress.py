"""Progress output of long steps: one line for each step, with the elapsed time.

A terminal shows the line updated in place. Elsewhere (a log, CI) it is written when the step begins, once a minute, and
when it ends.
"""

import time
from collections.abc import Callable
from typing import TextIO

IN_PLACE_SECONDS = 0.5
LOG_SECONDS = 60.0


class ProgressOutput:
    """Writes the progress of one step after the other to a stream."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._in_place = stream.isatty()

    @property
    def interval(self) -> float:
        """The seconds between two texts that `tick` has to show."""
        return IN_PLACE_SECONDS if self._in_place else LOG_SECONDS

    def say(self, line: str) -> None:
        """A line that stays."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def step(self, title: str, expectation: str) -> "ProgressLine":
        """Begin a step; `expectation` tells the reader how long to be patient."""
        return ProgressLine(self._stream, self._clock, self._in_place, self.interval, title, expectation)


class ProgressLine:
    """One line of progress, from its beginning to `done` or `failed`."""

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float],
        in_place: bool,
        interval: float,
        title: str,
        expectation: str,
    ) -> None:
        self._stream, self._clock, self._in_place, self._interval = stream, clock, in_place, interval
        self._title, self._expectation = title, expectation
        self._began = self._shown = clock()
        self._write(f"{title} … ({expectation})", final=False)

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def tick(self) -> None:
        """Show that time passes; however often it is called, a log gets a line a minute."""
        if self._clock() - self._shown < self._interval:
            return
        self._shown = self._clock()
        self._write(f"{self._title} … {self.seconds:.0f} s ({self._expectation})", final=False)

    def done(self, note: str = "") -> None:
        """Close the line with the time it took."""
        self._write(f"{self._title}: {self.seconds:.0f} s{note}", final=True)

    def failed(self) -> None:
        """Close the line; the error that follows says why."""
        self._write(f"{self._title}: failed after {self.seconds:.0f} s", final=True)

    def _write(self, line: str, *, final: bool) -> None:
        if self._in_place:
            self._stream.write(f"\r\x1b[K{line}" + ("\n" if final else ""))
        else:
            self._stream.write(line + "\n")
        self._stream.flush()
