"""Progress lines of steps that take minutes."""

import io

from tidemark_devcluster.programs.progress import ProgressOutput


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def two_steps(stream: io.StringIO) -> None:
    """One step that ends well after ninety seconds, one that fails at once."""
    clock = Clock()
    progress = ProgressOutput(stream, clock)
    step = progress.step("building etcd", "about one minute")
    for clock.now in range(0, 61, 20):
        step.tick()
    clock.now = 90
    step.done(", 27 MB")
    progress.step("building kubectl", "half a minute").failed()


def test_in_a_terminal_one_line_is_updated_in_place() -> None:
    """A step is one line in the end, whatever came in between."""
    stream = Terminal()
    two_steps(stream)
    lines = [line.rpartition("\x1b[K")[2] for line in stream.getvalue().rstrip("\n").split("\n")]
    assert lines[-2:] == ["building etcd: 90 s, 27 MB", "building kubectl: failed after 0 s"]
    assert stream.getvalue().count("\n") == 2


def test_in_a_log_every_line_stays_and_there_are_few() -> None:
    """No control characters; a line a minute is enough."""
    stream = io.StringIO()
    two_steps(stream)
    assert stream.getvalue().splitlines() == [
        "building etcd … (about one minute)",
        "building etcd … 60 s (about one minute)",
        "building etcd: 90 s, 27 MB",
        "building kubectl … (half a minute)",
        "building kubectl: failed after 0 s",
    ]
    assert ProgressOutput(stream).interval > ProgressOutput(Terminal()).interval
