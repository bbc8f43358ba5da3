"""pytest's side of a lane (`-p tests.lanes.plugin`): it writes the ledger, and leaves out tests that others run.

--lane-ledger FILE    append each test's outcome there
--lane-passed FILE    leave out the tests that this file names, one a line
--share K/N           run the K-th of N shares: files are dealt out by their recorded seconds (shares.py), and the
                      longest begin first
--broad K/N           of the tests that are marked `broad`, run the K-th of N shares: end-to-end tests are dealt out by
                      file, as those of a file share a system, and others one by one
--broad-minutes N     leave out the broad tests that N minutes after the start have not begun: a slow machine runs fewer
--slow-minutes N      the same for slow tests; none of them may take longer than LONGEST_SECONDS then
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import cast

import pytest

from tests.lanes import marked_files, processor_time
from tests.lanes.ledger import TOO_LATE, Entry, append
from tests.lanes.shares import longest_first, share_of_broad_tests, share_of_files

CPU = "cpu seconds"
CPU_BEFORE = pytest.StashKey[float]()
BEGAN = pytest.StashKey[float]()
"""When the session, or the worker, began, on the monotonic clock."""
BOUNDED = ("broad", "slow")
"""Marks of tests that are left out where they would begin too late."""
LONGEST_SECONDS = 1200
"""The longest slow test takes 600 s on a busy machine. Some that wait for several processes may take an hour."""
REASON_LINES = 25
"""The lines of a failure's report, counted from its end, that the ledger keeps."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lanes")
    group.addoption("--lane-ledger", type=Path)
    group.addoption("--lane-passed", type=Path)
    group.addoption("--broad", help="K/N: the K-th of N shares of the tests marked `broad`")
    for mark in BOUNDED:
        group.addoption(f"--{mark}-minutes", type=float, help=f"leave out tests marked `{mark}` that would begin later")
    group.addoption("--share", help="K/N: the K-th of N shares of the files")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGAN] = time.monotonic()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--lane-ledger") is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config, config.getoption("--lane-ledger")))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that does not name the marks of its tests is an error, as one that cannot be imported."""
    report = yield
    errors = marked_files.unnamed_marks(node for node in report.result if isinstance(node, pytest.Item))
    if errors:
        report.outcome, report.longrepr = "failed", "\n".join(errors)
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Last, when marks have been asked for: a share is of the tests that are to run."""
    kept = list(items)
    if share := config.getoption("--share"):
        number, of = map(int, share.split("/"))
        tests = Counter(map(file_of, items))
        files = share_of_files(dict(tests), number, of)
        order = {file: place for place, file in enumerate(longest_first(tests))}
        kept = sorted((item for item in kept if file_of(item) in files), key=lambda item: order[file_of(item)])
    if broad := config.getoption("--broad"):
        number, of = map(int, broad.split("/"))
        units = share_of_broad_tests((unit_of(item) for item in kept if is_broad(item)), number, of)
        kept = [item for item in kept if not is_broad(item) or unit_of(item) in units]
    if (passed := config.getoption("--lane-passed")) is not None:
        names = set(passed.read_text().splitlines())
        kept = [item for item in kept if item.nodeid not in names]
    if config.getoption("--slow-minutes") is not None:
        shorten_limits(item for item in kept if item.get_closest_marker("slow"))
    if left_out := set(items) - set(kept):
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = kept


def shorten_limits(items: Iterable[pytest.Item]) -> None:
    """Give tests that may take longer, a limit of LONGEST_SECONDS."""
    for item in items:
        limit = item.get_closest_marker("timeout")
        if limit is not None and limit.args[0] > LONGEST_SECONDS:
            item.add_marker(pytest.mark.timeout(LONGEST_SECONDS), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    past = time.monotonic() - item.config.stash[BEGAN]
    for mark in BOUNDED:
        minutes = item.config.getoption(f"--{mark}-minutes")
        if minutes is not None and item.get_closest_marker(mark) is not None and past > 60 * minutes:
            item.user_properties.append((TOO_LATE, mark))
            pytest.skip(f"a {mark} test, of which none begins after {minutes:g} minutes: --{mark}-minutes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    session.config.stash[CPU_BEFORE] = processor_time.of_tree()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a test's last phase has the CPU time since the last test's end; xdist carries it to the ledger."""
    report = yield
    if report.when == "teardown":
        before = item.config.stash[CPU_BEFORE]
        now = item.config.stash[CPU_BEFORE] = processor_time.of_tree()
        report.user_properties.append((CPU, max(0.0, now - before)))
    return report


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def is_broad(item: pytest.Item) -> bool:
    return item.get_closest_marker("broad") is not None


def unit_of(item: pytest.Item) -> str:
    """The name under which shares deal out a test: an end-to-end test goes with its file, any other one alone."""
    return file_of(item) if item.get_closest_marker("e2e") else item.nodeid


class Recorder:
    """Writes an entry when a test's last phase is reported; with xdist, in the process that hears all workers."""

    def __init__(self, config: pytest.Config, ledger: Path) -> None:
        self._config, self._ledger = config, ledger
        self._seconds: dict[str, float] = defaultdict(float)
        self._outcome: dict[str, str] = {}
        self._reason: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self._seconds[test] += report.duration
        before = self._outcome.get(test, "passed")
        # an expected failure is reported as skipped, and a test may fail in its teardown alone
        worst = max(before, report.outcome, key=("passed", "skipped", "failed").index)
        self._outcome[test] = worst
        if report.failed:
            self._reason[test] = end_of_report(report)
            self._show(report)
        if report.when == "teardown":
            said = dict(report.user_properties)
            if TOO_LATE in said:
                self._outcome[test] = TOO_LATE
            self._write(test, cast(float, said.get(CPU, 0.0)))

    def _show(self, report: pytest.TestReport) -> None:
        """At once, in the lane's log: its other tests may take half an hour more."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_sep("-", report.nodeid)
            terminal.write_line(report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported has no test that could fail."""
        if report.failed:
            self._append(report.nodeid, "error", 0.0, end_of_report(report))

    def pytest_internalerror(self, excrepr: object) -> None:
        """Workers of which a hook fails may end before they have a test; the session's exit code is NO_TESTS then."""
        self._append("pytest", "error", 0.0, end_of_text(str(excrepr)))

    def pytest_sessionfinish(self) -> None:
        """A worker that died has reported no teardown."""
        for test in list(self._outcome):
            self._outcome[test] = "failed"
            self._reason.setdefault(test, "the worker died before the test ended")
            self._write(test)

    def _write(self, test: str, cpu: float = 0.0) -> None:
        self._append(test, self._outcome.pop(test), self._seconds.pop(test), self._reason.pop(test, ""), cpu)

    def _append(self, test: str, outcome: str, seconds: float, reason: str, cpu: float = 0.0) -> None:
        lane = json.loads(os.environ["TIDEMARK_LANE"])
        place = (lane["commit"], lane["round"], lane["lane"])
        entry = Entry(*place, test, outcome, round(seconds, 3), reason, round(cpu, 2))
        append(self._ledger, entry)


def end_of_report(report: pytest.TestReport | pytest.CollectReport) -> str:
    return end_of_text(report.longreprtext)


def end_of_text(text: str) -> str:
    return "\n".join(text.splitlines()[-REASON_LINES:])
