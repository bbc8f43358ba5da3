"""A report on the replicas of a failed test: the stacks of their threads, and the end of their logs."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.e2e.failures.remote_replicas import Remote

TOLD = 20_000
"""Characters of a log."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Before fixtures end them."""
    report = yield
    if report.when == "call" and report.failed:
        remotes = [r for r in getattr(item, "funcargs", {}).values() if isinstance(r, Remote)]
        report.sections += [(f"log of replica {remote.name}", last_words(remote)) for remote in remotes]
    return report


def last_words(remote: Remote) -> str:
    """A replica answers SIGUSR1 with its stacks, unless it is stopped or gone."""
    if remote.process.process.poll() is None:
        remote.process.tell_stacks()
    return remote.process.log_text()[-TOLD:]
