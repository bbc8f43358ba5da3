"""The files of a child, in its home folder.

process.json     written by the child itself (launch.py): pid, start time, digest of its shape, time of start
attempts.json    written by the operator: number of restarts and failures, last exit
lock, log, log.1, scratch/
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_operator.orchestrator.interface import Exit
from tidemark_operator.process_liveness import ProcessId

MAX_LOG_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Record:
    """The contents of process.json; `started_at_ms`: milliseconds since 1970."""

    process: ProcessId
    digest: str
    started_at_ms: int

    @property
    def incarnation(self) -> str:
        return f"{self.process.pid}-{self.process.start_time}"


@dataclass(frozen=True)
class Attempts:
    """The contents of attempts.json. `failures`: in a row, for the back-off; `restarts`: in total."""

    restarts: int = 0
    failures: int = 0
    last_exit: Exit | None = None


class Home:
    """A child's home folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log"
        self.scratch = path / "scratch"

    def create(self) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)

    def record(self) -> Record | None:
        raw = _read(self.path / "process.json")
        if raw is None:
            return None
        return Record(ProcessId(raw["pid"], raw["startTime"]), raw["digest"], raw["startedAt"])

    def forget_process(self) -> None:
        (self.path / "process.json").unlink(missing_ok=True)

    def attempts(self) -> Attempts:
        raw = _read(self.path / "attempts.json")
        if raw is None:
            return Attempts()
        last = Exit(raw["exitCode"], raw["exitAt"]) if "exitAt" in raw else None
        return Attempts(raw["restarts"], raw["failures"], last)

    def write_attempts(self, attempts: Attempts) -> None:
        raw: dict[str, int | None] = {"restarts": attempts.restarts, "failures": attempts.failures}
        if attempts.last_exit is not None:
            raw |= {"exitCode": attempts.last_exit.code, "exitAt": attempts.last_exit.at_ms}
        new = self.path / "attempts.json.new"
        new.write_text(json.dumps(raw))
        os.replace(new, self.path / "attempts.json")

    def clear_scratch(self) -> None:
        """Empty the scratch folder: arrangements are of no use to the next process."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.create()

    def bound_log(self) -> None:
        """Keep at most two logs of MAX_LOG_BYTES each. The child opens its log for appending, so a truncation is
        safe."""
        try:
            if self.log.stat().st_size <= MAX_LOG_BYTES:
                return
        except FileNotFoundError:
            return
        with self.log.open("rb") as log:
            log.seek(-MAX_LOG_BYTES, os.SEEK_END)
            (self.path / "log.1").write_bytes(log.read(MAX_LOG_BYTES))
        os.truncate(self.log, 0)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) else None
