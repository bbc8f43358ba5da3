"""Stacks of processes, sampled from inside: collapsed stacks, as speedscope.app and flamegraph.pl read them.

    <process>;outermost;...;innermost 17          17 samples, a millisecond apart

A thread of the process looks at all others' stacks. Samples of a thread that waits for the JVM count as `waiting`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_S = 0.001
FLUSH_S = 0.5
_WAITING = frozenset({"read_int", "recv_into", "readinto", "wait", "select", "accept", "read_with_length"})


@functools.cache
def sample_this_process(folder: Path) -> None:
    """From now on, until the process ends."""
    threading.Thread(target=_sample, args=(folder / f"stacks.{os.getpid()}.txt",), daemon=True).start()


def collected(folder: Path) -> Counter[str]:
    """The stacks of all processes."""
    found: Counter[str] = Counter()
    for path in folder.glob("stacks.*.txt"):
        for line in path.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            found[stack] += int(count)
    return found


def _sample(path: Path) -> None:
    seen: Counter[str] = Counter()
    own, written = threading.get_ident(), time.monotonic()
    root = _process(" ".join(sys.orig_argv))
    while True:
        time.sleep(EVERY_S)
        for thread, frame in sys._current_frames().items():
            if thread != own:
                seen[";".join([root, *_stack(frame)])] += 1
        if time.monotonic() - written > FLUSH_S:
            written = time.monotonic()
            _write(path, seen)


def _process(command: str) -> str:
    """The kind of process."""
    if "bench.profiling.worker" in command:
        return "step worker"
    return "task" if "pyspark.worker" in command else "driver"


def _stack(frame: FrameType | None) -> list[str]:
    if frame is not None and frame.f_code.co_name in _WAITING:
        return ["waiting"]
    names = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        frame = frame.f_back
    return names[::-1]


def _write(path: Path, seen: Counter[str]) -> None:
    with contextlib.suppress(FileNotFoundError):  # the benchmark has ended, and its folder with it
        path.write_text("".join(f"{stack} {count}\n" for stack, count in seen.items()))
