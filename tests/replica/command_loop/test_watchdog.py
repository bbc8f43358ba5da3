"""A replica whose command loop is stuck ends, and says where it was; one that has been busy goes on."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.replica.process import ScriptedClient, epochs
from tests.waiting import BOUND
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_replica.process import watchdog
from tidemark_replica.process.watchdog import EXIT_STUCK, Watchdog

STUCK = """
import sys, threading
from tidemark_replica.command_loop import loop
from tidemark_replica.process import watchdog
from tidemark_replica.__main__ import main

def stuck_in_the_middle_of_a_command(self, event):
    watchdog.CHECKS_MAX = 5
    threading.Event().wait()

watchdog.PAUSE_SECONDS = 0.05
loop.CommandLoop.handle = stuck_in_the_middle_of_a_command
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(watchdog, "CHECKS_MAX", 10)


def test_a_loop_that_stays_away_is_stuck() -> None:
    stuck = threading.Event()
    Watchdog(lambda: 7, stuck.set).start()
    assert stuck.wait(BOUND)


def test_a_loop_that_comes_round_now_and_then_is_not() -> None:
    """Once in nine looks: a thousand looks later nothing has been said; then it stays away."""
    looks, stuck = itertools.count(), threading.Event()
    at: list[int] = []

    def rounds() -> int:
        at.append(next(looks))
        assert not stuck.is_set()
        return min(at[-1], 1000) // 9

    Watchdog(rounds, stuck.set).start()
    assert stuck.wait(BOUND)
    assert at[-1] > 1000


def test_one_that_is_stopped_says_nothing_more() -> None:
    """Its loop has ended, and the process goes on."""
    before, stuck, looks = set(threading.enumerate()), threading.Event(), itertools.count()
    watchdog = Watchdog(lambda: next(looks), stuck.set)
    watchdog.start()
    (its_own,) = set(threading.enumerate()) - before
    watchdog.stop()
    its_own.join(BOUND)

    assert not its_own.is_alive()
    assert not stuck.is_set()


def test_crash_a_log_that_is_stuck_as_well_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    """Whoever writes to it holds its lock; so the watchdog's own words wait, and the process ends without them."""
    held = "import logging, threading; from tidemark_replica.process import watchdog; watchdog.DUMP_SECONDS_MAX = 0.2; "
    held += "handler = logging.StreamHandler(); logging.getLogger().addHandler(handler); "
    held += "threading.Thread(target=lambda: (handler.acquire(), threading.Event().wait()), daemon=True).start(); "
    held += (
        "[None for _ in iter(lambda: handler.lock.acquire(blocking=False) and handler.lock.release() is None, False)]; "
    )
    held += "watchdog.exit_stuck()"
    assert subprocess.run([sys.executable, "-c", held], timeout=BOUND, check=False).returncode == EXIT_STUCK


def test_crash_a_stuck_replica_ends_and_its_log_says_where_it_was(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tm-") as sockets, (tmp_path / "log").open("wb") as log:
        address = f"unix://{sockets}/s/replica.sock"
        command = [sys.executable, "-c", STUCK, "--listen", address, "--scratch", str(tmp_path / "scratch")]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            client = ScriptedClient(address)
            client.greet(next(epochs()), InstanceConfig("default", str(tmp_path / "shards")))
            assert process.wait(BOUND) == EXIT_STUCK
            client.close()
    output = (tmp_path / "log").read_text()
    assert "the command loop made no progress for 5 checks" in output
    assert "in stuck_in_the_middle_of_a_command" in output
