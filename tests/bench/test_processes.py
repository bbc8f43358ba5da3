"""CPU time of short-lived processes is counted once, whichever process waits for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.harness.processes import TICKS_PER_SECOND, Descendants, Key, Spent

ROOT = 1
Look = dict[int, tuple[int, int, int]]
"""By pid: (parent, own ticks, ticks of children waited for)."""

BEFORE: Look = {1: (0, 5, 0), 2: (1, 10, 0), 3: (2, 100, 0)}
CASES: dict[str, tuple[Look, int]] = {
    "all go on": ({1: (0, 9, 0), 2: (1, 11, 0), 3: (2, 120, 0)}, 21),
    "one ended, and its parent waited for it": ({1: (0, 9, 0), 2: (1, 11, 107)}, 8),
    "one ended, and nobody waited for it": ({1: (0, 9, 0), 2: (1, 11, 0)}, 1),
    "one came and went in between": ({1: (0, 9, 0), 2: (1, 10, 30), 3: (2, 100, 0)}, 30),
    "a parent ended, and its child is init's": ({1: (0, 9, 12), 3: (999, 125, 0)}, 27),
    "both ended, one waiting for the other": ({1: (0, 9, 125)}, 15),
    "both ended, and nobody waited": ({1: (0, 9, 0)}, 0),
    "another has come": ({1: (0, 9, 0), 2: (1, 10, 0), 3: (2, 100, 0), 4: (3, 7, 2)}, 9),
    "one of somebody else's": ({1: (0, 9, 0), 2: (1, 10, 0), 3: (2, 100, 0), 5: (999, 70, 0)}, 0),
}


def seen(look: Look) -> dict[Key, Spent]:
    return {Key(pid, 0): Spent(*spent) for pid, spent in look.items()}


def ticks(processes: Descendants, look: Look) -> int:
    """The sum after a look."""
    processes.take(seen(look))
    return processes.ticks


@pytest.mark.parametrize(("after", "more"), CASES.values(), ids=CASES)
def test_each_tick_is_counted_once(after: Look, more: int) -> None:
    """Never twice, never less than before, and lost only where the system does not tell."""
    processes = Descendants(ROOT)
    before = ticks(processes, BEFORE)
    assert before == 110
    assert ticks(processes, after) - before == more


def test_a_number_that_is_used_again_is_another_process() -> None:
    """The processor time of the new one counts from zero."""
    processes = Descendants(ROOT)
    processes.take(seen(BEFORE))
    processes.take({Key(1, 0): Spent(0, 5, 0), Key(2, 0): Spent(1, 10, 0), Key(3, 77): Spent(2, 40, 0)})
    assert processes.ticks == 110 + 40


def test_cpu_time_of_an_unreaped_child_counts() -> None:
    """A parent that ignores the ends of its children, as PySpark's daemon does."""
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    daemon = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {burn!r}])\nchild.wait()\nprint(flush=True)\ninput()"
    )
    processes = Descendants()
    before = processes.cpu_ms()
    command = [sys.executable, "-c", daemon]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdout.readline()
        lives = processes.cpu_ms()
        started.stdin.write(b"\n")
        started.stdin.flush()
        started.stdout.readline()
        ended = processes.cpu_ms()
        started.stdin.close()
    assert lives - before >= 200 - 2000 / TICKS_PER_SECOND
    assert ended >= lives
    assert processes.cpu_ms() >= ended
