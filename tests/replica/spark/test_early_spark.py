"""A driver with executors asks for them at once: they take a while, on other machines."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from tests.cluster.waiting import wait_for
from tests.waiting import BOUND
from tidemark_replica.options import parse
from tidemark_replica.process.replica import Replica


def test_executors_are_asked_for_before_the_first_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is no API server, which the driver finds out on its own; it goes on, for whoever will need Spark."""
    caplog.set_level(logging.WARNING)
    (tmp_path / "socket").mkdir(mode=0o700)
    arguments = [f"--listen=unix://{tmp_path}/socket/replica", f"--scratch={tmp_path}/scratch", "--driver-steps=0"]
    replica = Replica(parse([*arguments, "--master=k8s://https://127.0.0.1:1", "--executor-labels=a=b"]))
    ended: list[bool] = []
    running = threading.Thread(target=lambda: ended.append(replica.run()))
    running.start()
    try:
        why = "Spark does not start: executors of an earlier process cannot be deleted"
        wait_for("its first try", lambda: why in caplog.text)
        wait_for("another, as what refuses them may not for ever", lambda: replica._spark._backoff.failures > 1)
        assert running.is_alive()
    finally:
        replica.stop()
        running.join(BOUND)
        replica.close()
    assert ended == [True]
