"""Watches that end repeatedly or cannot begin: pauses and log lines."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import threading

import pytest

from tidemark_operator.handlers.watch import watches
from tidemark_operator.handlers.watch.watch_backoff import (
    LASTING_SECONDS,
    LOG_AGAIN_SECONDS,
    MAX_PAUSE_SECONDS,
    WatchBackoff,
)

REFUSED, MISSING = PermissionError("the token is none"), LookupError("dataflows")


def told_by(ends: WatchBackoff, caplog: pytest.LogCaptureFixture, error: BaseException, now: float) -> str:
    caplog.clear()
    ends.pause_after(error, now)
    return caplog.records[0].getMessage() if caplog.records else ""


def test_each_reason_is_told_once_and_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """However often they have ended before for another one: what is wrong now is what is to be known."""
    caplog.set_level(logging.WARNING)
    ends = WatchBackoff()
    assert "PermissionError: the token is none" in told_by(ends, caplog, REFUSED, 0)
    assert told_by(ends, caplog, REFUSED, 8) == ""
    assert "LookupError: dataflows" in told_by(ends, caplog, MISSING, 16)
    assert told_by(ends, caplog, MISSING, LOG_AGAIN_SECONDS) == ""
    assert "LookupError: dataflows" in told_by(ends, caplog, MISSING, 16 + LOG_AGAIN_SECONDS)


def test_the_recovery_of_watches_is_reported_and_ends_the_backoff(caplog: pytest.LogCaptureFixture) -> None:
    """Not after a single end, which is as good as none; the next one is told whatever its reason."""
    caplog.set_level(logging.WARNING)
    ends = WatchBackoff()
    ends.pause_after(REFUSED, 0)
    caplog.clear()
    ends.reset()
    assert not caplog.records
    pauses = [ends.pause_after(REFUSED, now) for now in range(6)]
    assert pauses == [1, 2, 4, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS]
    caplog.clear()
    ends.reset()
    assert "watches last again, after 6 in a row ended" in caplog.text
    assert told_by(ends, caplog, REFUSED, LASTING_SECONDS)
    assert ends.pause_after(REFUSED, LASTING_SECONDS) == 2


async def once() -> BaseException | None:
    return await watches._watch_once(lambda *_: None, lambda: None, None, ())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a loop that was never made ends
def test_watches_for_which_there_is_no_descriptor_end_like_any_others() -> None:
    """They are begun anew when there is one again, and the operator goes on."""

    async def scenario() -> BaseException | None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        os.close(lowest := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            return await once()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    ended = asyncio.run(scenario())
    assert isinstance(ended, OSError)
    assert ended.errno == errno.EMFILE


def test_watches_for_which_there_is_no_thread_end_like_any_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    ended = asyncio.run(once())
    assert "can't start new thread" in str(ended)
