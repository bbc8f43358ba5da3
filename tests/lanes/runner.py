"""Lanes beside each other: each is a pytest of its own; one summary, one exit code.

ledger ──► what passed before (--resume) ──► pytest -p tests.lanes.plugin, one for each lane ──► ledger
                                              │ its output: a log for each lane
                                              ▼
                        progress, failures as they come, the sum: "N passed, M failed, K skipped"
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.lanes import processor_time
from tests.lanes.class_data import jvm_options
from tests.lanes.ledger import CHECKOUT, TOO_LATE, Entry, commit_of_checkout, entries
from tests.lanes.marked_files import files_with, names_paths
from tests.lanes.memory_folder import command_in_memory, place_in_memory

POLL_SECONDS = 0.5
PROGRESS_SECONDS = 30.0
LOG_END = 12_000
"""Characters of a lane's log that are shown where the lane broke off."""
SLOWEST_FILES = 12
NO_TESTS = 5
"""pytest's exit code where nothing was left to run."""


@dataclass(frozen=True)
class Lane:
    """Tests that share a process, or `workers` processes, and with them sessions and servers."""

    name: str
    arguments: tuple[str, ...]
    workers: int = 0
    distribution: str = "loadfile"
    marks: tuple[str, ...] = ()
    """Only files that name one of these are collected, unless the arguments name paths; all files, where none are."""
    niceness: int = 0
    """The number that is added to the niceness of its processes: lanes that compute yield to those that mostly wait."""

    def command(self) -> list[str]:
        files = files_with(self.marks) if self.marks and not names_paths(self.arguments) else []
        several = ["-n", str(self.workers), "--dist", self.distribution] if self.workers else []
        # a process that a shell started in the background ignores interrupts, and would not end by one
        return [
            "env",
            "--default-signal=INT",
            *(["nice", "-n", str(self.niceness)] if self.niceness else []),
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.lanes.plugin",
            *several,
            *self.arguments,
            *files,
        ]


@dataclass
class Running:
    """A lane under way, and what its tests have come to."""

    lane: Lane
    process: subprocess.Popen[bytes]
    log: Path
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds_of_files: Counter[str] = field(default_factory=Counter)
    cpu_of_files: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def broke(self) -> bool:
        """It ended otherwise than by its tests: a wrong option, a crash, a signal."""
        code = self.process.returncode
        return code not in (0, NO_TESTS) and not (code == 1 and (self.outcomes["failed"] or self.outcomes["error"]))


@dataclass(frozen=True)
class Round:
    """One run of all lanes at one commit."""

    lanes: Sequence[Lane]
    ledger: Path
    commit: str
    number: int = 1
    resumed: bool = False
    memory: Path | None = None
    """Where each lane mounts a folder in memory for its tests' files; None: they are in the system's TMPDIR."""

    def run(self) -> bool:
        """Whether everything passed."""
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        # a random end: two short rounds of one process begin within a second
        folder = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%dT%H%M%S-"), dir=self.ledger.parent))
        passed = folder / "passed"
        before = {e.test for e in self._entries() if e.outcome in ("passed", "skipped")} if self.resumed else set()
        passed.write_text("\n".join(sorted(before)))
        position = self.ledger.stat().st_size if self.ledger.exists() else 0
        began = time.monotonic()
        with self._lanes(folder, passed) as running:
            self._follow(running, position)
        return summary(running, len(before), time.monotonic() - began)

    def _entries(self) -> Iterator[Entry]:
        return (e for e in entries(self.ledger) if (e.commit, e.round) == (self.commit, self.number))

    @contextmanager
    def _lanes(self, folder: Path, passed: Path) -> Iterator[list[Running]]:
        """All lanes, begun; those that still run at the end are interrupted, and waited for."""
        running: list[Running] = []
        try:
            for lane in self.lanes:
                running.append(self._begin(lane, folder / f"{lane.name}.log", passed))
            yield running
        finally:
            for each in running:
                if each.process.poll() is None:
                    os.killpg(each.process.pid, signal.SIGINT)  # as a terminal: workers of xdist are told, too
            for each in running:
                each.process.wait()

    def _begin(self, lane: Lane, log: Path, passed: Path) -> Running:
        settings = {"commit": self.commit, "round": self.number, "lane": lane.name}
        environ = os.environ | jvm_options() | {"TIDEMARK_LANE": json.dumps(settings), "PYTHONUNBUFFERED": "1"}
        # each of some thousand processes that tests start would compile our packages for itself
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        # pytest takes a path after an option that it does not know yet for one of tests, and looks for its settings
        # above it
        command = [*lane.command(), f"--lane-ledger={self.ledger}", f"--lane-passed={passed}"]
        if self.memory is not None:
            command = command_in_memory([*command, "-o", "tmp_path_retention_policy=failed"], self.memory)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environ,
                cwd=CHECKOUT,
                process_group=0,
            )
        return Running(lane, process, log)

    def _follow(self, running: Sequence[Running], position: int) -> None:
        """Follow all lanes to their end: failures are printed at once, progress now and then."""
        by_name = {each.lane.name: each for each in running}
        began = started = time.monotonic()
        while True:
            codes = [each.process.poll() for each in running]  # each of them, so that each lane's end is noticed
            over = None not in codes
            processor_time.reap_orphans([each.process.pid for each in running])
            position = self._hear(by_name, position)
            for each in running:
                if each.process.returncode is not None and not each.seconds:
                    each.seconds = time.monotonic() - each.began
                    say(f"{each.lane.name} ended after {each.seconds:.0f} s: {counted(each.outcomes)}")
            if over:
                return
            if time.monotonic() - started > PROGRESS_SECONDS:
                started = time.monotonic()
                say(f"{started - began:6.0f} s  " + ", ".join(f"{r.lane.name} {r.outcomes.total()}" for r in running))
            time.sleep(POLL_SECONDS)

    def _hear(self, running: dict[str, Running], position: int) -> int:
        """Count what the ledger has gained since `position`; the position of what is to be read next."""
        if not self.ledger.exists():
            return position
        with self.ledger.open("rb") as file:
            file.seek(position)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            position += len(line)
            entry = Entry(**json.loads(line))
            lane = running.get(entry.lane)
            if lane is not None and (entry.commit, entry.round) == (self.commit, self.number):
                lane.outcomes[entry.outcome] += 1
                lane.seconds_of_files[entry.file] += entry.seconds
                lane.cpu_of_files[entry.file] += entry.cpu
                if entry.outcome in ("failed", "error"):
                    say(f"{entry.outcome.upper()} {entry.test} ({entry.lane}: {lane.log})")
                    say(textwrap.indent(entry.reason, "  | "))
        return position


def summary(running: Sequence[Running], before: int, seconds: float) -> bool:
    """Print the logs' ends of lanes that broke off, a table, and pytest's last line for all; whether all passed."""
    total: Counter[str] = sum((each.outcomes for each in running), Counter())
    for each in running:
        if each.broke:
            say(f"--- {each.lane.name}: the end of {each.log}")
            say(each.log.read_text(errors="replace")[-LOG_END:])
            total["error"] += 1
            say(f"lane {each.lane.name} ended with exit code {each.process.returncode}: {each.log}")
    print_table(running)
    if before:
        say(f"{before} passed before at this commit, and were left out")
    say(f"all lanes ended after {seconds:.0f} s")
    say(counted(total))
    return not (total["failed"] or total["error"])


def print_table(running: Sequence[Running]) -> None:
    """Print outcomes, seconds and the slowest files of each lane, and the CPU time of all."""
    say(f"{'lane':12}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}")
    for each in running:
        numbers = "".join(f"{each.outcomes[what]:8}" for what in ("passed", "failed", "skipped"))
        say(f"{each.lane.name:12}{numbers}{each.seconds:9.0f}")
    for each in running:
        say(f"{each.lane.name}, CPU time of its tests: {sum(each.cpu_of_files.values()):.0f} s; {slowest(each)}")
    say(f"CPU time of all lanes: {processor_time.of_children():.0f} s")


def slowest(lane: Running) -> str:
    """Files that took the most CPU time, with their wall time beside it."""
    files = sorted(lane.cpu_of_files.items(), key=lambda entry: -entry[1])[:SLOWEST_FILES]
    return ", ".join(f"{file} {cpu:.0f} s in {lane.seconds_of_files[file]:.0f} s" for file, cpu in files)


def counted(outcomes: Counter[str]) -> str:
    """The counts as in pytest's last line; failures are said also where there are none."""
    line = f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped"
    line += f", {outcomes[TOO_LATE]} left out as too late" if outcomes[TOO_LATE] else ""
    return line + (f", {outcomes['error']} errors" if outcomes["error"] else "")


def say(text: str) -> None:
    print(text, flush=True)


def run_rounds(lanes: Sequence[Lane], ledger: Path, times: int, resumed: bool) -> int:
    """Run so many rounds at the commit that is checked out. Returns the exit code."""
    commit = commit_of_checkout()
    ledger.parent.mkdir(parents=True, exist_ok=True)
    failed, memory = [], place_in_memory()
    say("files of tests are " + ("in memory" if memory else f"in {tempfile.gettempdir()}"))
    for number in range(1, times + 1):
        say(f"round {number} of {times} at {commit}: {', '.join(lane.name for lane in lanes)}; ledger {ledger}")
        if not Round(lanes, ledger, commit, number, resumed, memory).run():
            failed.append(number)
    if times > 1:
        say(f"{times - len(failed)} rounds passed, {len(failed)} failed {failed or ''}")
    return 1 if failed else 0
